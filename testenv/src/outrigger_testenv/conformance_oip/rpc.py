"""Calls over gRPC, and their answers as text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf.message import Message

from inference import inference_pb2 as messages
from outrigger_testenv.conformance_oip.http import TIMEOUT
from outrigger_testenv.conformance_oip.tensors import decoded, encoded, shown

SERVICE = "inference.GRPCInferenceService"
# Largest message that is sent and received.
_LARGEST = 256 << 20

CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "BYTES": "bytes_contents",
}
"""The field of the typed values of a datatype."""

Request = messages.ModelInferRequest


def channel(address: str) -> grpc.Channel:
    """A connection without limits of messages."""
    names = ("grpc.max_send_message_length", "grpc.max_receive_message_length")
    return grpc.insecure_channel(address, [(name, _LARGEST) for name in names])


def call(link: grpc.Channel, name: str, request: Message) -> Message:
    """Calls a method of the protocol. Raises grpc.RpcError."""
    return begin(link, name, request).result()


def begin(link: grpc.Channel, name: str, request: Message, timeout: float = TIMEOUT) -> grpc.Future:
    """Begins to call a method of the protocol, with a deadline of `timeout` seconds."""
    answer = getattr(messages, f"{name}Response")
    method = link.unary_unary(
        f"/{SERVICE}/{name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    return method.future(request, timeout=timeout)


def request(method: str, /, **fields: Any) -> Message:
    """The request of a method."""
    return getattr(messages, f"{method}Request")(**fields)


def outcome(act: Callable[[], str]) -> str:
    """The result of an act, or the status of the call that failed in it."""
    try:
        return act()
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"


def infer(model: str, *inputs: Mapping[str, Any], **fields: Any) -> Request:
    """A ModelInferRequest. An input has name, datatype and shape, and either `data`, which become
    typed contents, or `raw`: bytes, or values that become bytes.
    """
    made = Request(model_name=model, **fields)
    for each in inputs:
        datatype = each["datatype"]
        added = made.inputs.add(name=each["name"], datatype=datatype, shape=each["shape"])
        if "raw" in each:
            raw = each["raw"]
            made.raw_input_contents.append(
                raw if isinstance(raw, bytes) else encoded(raw, datatype)
            )
        else:
            getattr(added.contents, CONTENTS[datatype]).extend(each["data"])
    return made


def x(
    shape: Sequence[int], datatype: str = "FP32", name: str = "x", **content: Any
) -> dict[str, Any]:
    """An input for `infer`; `content` is `data` or `raw`."""
    return {"name": name, "datatype": datatype, "shape": shape, **content}


def told(answer: messages.ModelInferResponse) -> str:
    """The outputs of an answer. Raises ValueError if it has both raw and typed values."""
    raws = list(answer.raw_output_contents)
    if raws and any(output.contents.ListFields() for output in answer.outputs):
        raise ValueError("the answer has both raw and typed values")
    if raws and len(raws) != len(answer.outputs):
        raise ValueError(f"{len(raws)} raw contents of {len(answer.outputs)} outputs")
    texts = [_output(each, raws[at] if raws else None) for at, each in enumerate(answer.outputs)]
    return f"OK {'; '.join(texts)}"


def output_names(answer: messages.ModelInferResponse) -> Iterable[str]:
    """The names of the outputs, in the order of the answer."""
    return [output.name for output in answer.outputs]


def _output(output: Any, raw: bytes | None) -> str:
    if raw is not None:
        values, form = decoded(raw, output.datatype), " raw"
    else:
        fields = output.contents.ListFields()
        values, form = [value for _, held in fields for value in held], ""
        values = [_text(value) for value in values]
    return shown(output.name, output.datatype, output.shape, values, form)


def _text(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
