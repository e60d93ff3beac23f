"""Checks 52 to 55 and 57 to 60: the answer to an inference."""

import gzip
import math
from typing import Any

import numpy as np

from outrigger_testenv.conformance_oip.check import Check, rest, rpc
from outrigger_testenv.conformance_oip.checks.request import INVALID, REFUSED, calls
from outrigger_testenv.conformance_oip.http import Answer, compact
from outrigger_testenv.conformance_oip.rpc import infer, x
from outrigger_testenv.conformance_oip.server import BINARY, FP32, Server
from outrigger_testenv.conformance_oip.tensors import encoded, outputs_of, tensor, told
from outrigger_testenv.oip.models import identity

SUM, DIFFERENCE = "sum FP32 [1,2] [4,6]", "difference FP32 [1,2] [-2,-2]"
PAIR = [tensor([1, 2], [1, 2], name="a"), tensor([3, 4], [1, 2], name="b")]
_RAW_PAIR = [x([1, 2], name="a", raw=[1, 2]), x([1, 2], name="b", raw=[3, 4])]
_NOT_TEXT = b"\xff\xfe"
# Values whose decimal forms are hard to write exactly.
_HARD = [0.1, 1 / 3, 16777217.0, 3.4028234663852886e38, 1e-45, -1.17549435e-38]
_MANY = 5000


def _keys(server: Server) -> str:
    """The keys of an answer, and those whose value is null."""
    answer = server.infer(FP32, {"inputs": [tensor([1, 2], [1, 2])]}).json()
    output = answer["outputs"][0]
    nulls = [key for part in (answer, output) for key, value in part.items() if value is None]
    return f"{sorted(answer)} {sorted(output)} of {answer['model_name']}, null: {nulls}"


def _fields(server: Server) -> str:
    answer = server.send(infer(FP32, x([1, 2], raw=[1, 2])))
    (output,) = answer.outputs
    return f"OK {answer.model_name} {output.name} {output.datatype} {list(output.shape)}"


def _consistent(server: Server) -> str:
    """Reports if each output has as many values as its shape says, also after a bad request."""
    sent = [
        tensor([1, 2, 3], [2, 2]),
        tensor([], [0, 2]),
        tensor([[1, 2], [3, 4]], [2, 2]),
        tensor([1, 2, 3, 4], [1, 2]),
    ]
    wrong = []
    for each in sent:
        answer = server.infer(FP32, {"inputs": [each]})
        if answer.status != 200:
            continue
        for _, _, shape, values, _ in outputs_of(answer):
            if math.prod(shape) != len(values):
                wrong.append(f"{len(values)} values of shape {compact(shape)}")
    return ", ".join(wrong) or "consistent"


def _pair(*names: str, **fields: Any):
    def act(server: Server) -> str:
        outputs = [{"name": name} for name in names]
        return told(server.infer("pair", {"inputs": PAIR, "outputs": outputs, **fields}))

    return act


def _pair_of_calls(*names: str):
    def act(server: Server) -> str:
        request = infer("pair", *_RAW_PAIR)
        for name in names:
            request.outputs.add(name=name)
        return server.answers(request)

    return act


def _nonfinite(*outputs: dict[str, Any]):
    def act(server: Server) -> str:
        request = {"inputs": [tensor([1, 2], [1, 2])], "outputs": list(outputs)}
        return told(server.infer("nonfinite", request))

    return act


def _not_text(server: Server) -> str:
    contents = encoded([_NOT_TEXT], "BYTES")
    inputs = [tensor(None, [1, 1], "BYTES", binary_data_size=len(contents))]
    return told(server.binary({"inputs": inputs}, contents, model=identity("BYTES")))


def _round_trip(server: Server) -> str:
    """Reports if FP32 in JSON are the numbers that were sent."""
    sent = np.array(_HARD, np.float32)
    answer = server.infer(FP32, {"inputs": [tensor(sent.tolist(), [1, len(_HARD)])]})
    if answer.status != 200:
        return answer.text()
    (values,) = (np.array(each[3], np.float32) for each in outputs_of(answer))
    return "equal" if values.tobytes() == sent.tobytes() else f"{values.tolist()}"


def _compressed(accepted: str):
    """The encoding of a large answer, and whether it can be read."""

    def act(server: Server) -> str:
        body = {"inputs": [tensor([1.5] * _MANY, [1, _MANY])]}
        answer = server.infer(FP32, body, Accept_Encoding=accepted)
        encoding = answer.headers.get("content-encoding", "none")
        plain = gzip.decompress(answer.body) if encoding == "gzip" else answer.body
        count = len(next(outputs_of(Answer(answer.status, answer.headers, plain)))[3])
        return f"{answer.status} encoding {encoding}, {count} values"

    return act


CHECKS = [
    Check(
        52,
        "an answer has the fields of the protocol, and no null",
        [
            rest(
                "fields",
                f"[*'model_name'*'outputs'*] ['data', 'datatype', 'name'*'shape'] of {FP32}, "
                "null: []",
                _keys,
            ),
            rpc(
                "fields",
                f"OK {FP32} OUT_x FP32 [1, 2]",
                _fields,
            ),
        ],
    ),
    Check(
        53,
        "an output has as many values as its shape says",
        [rest("good and bad requests", "consistent", _consistent)],
    ),
    Check(
        54,
        "only requested outputs are answered",
        [
            rest("sum", f"200 {SUM}", _pair("sum")),
            rest("unknown", REFUSED, _pair("sum", "product")),
            rest("duplicate", (REFUSED, f"200 {SUM}"), _pair("sum", "sum")),
            rpc("sum", "OK sum FP32 [1,2] raw [4,6]", _pair_of_calls("sum")),
            rpc("unknown", INVALID, _pair_of_calls("sum", "product")),
            rpc(
                "duplicate", (INVALID, "OK sum FP32 [1,2] raw [4,6]"), _pair_of_calls("sum", "sum")
            ),
        ],
    ),
    Check(
        55,
        "outputs are in the order of the request",
        [
            rest("difference, sum", f"200 {DIFFERENCE}; {SUM}", _pair("difference", "sum")),
            rest("sum, difference", f"200 {SUM}; {DIFFERENCE}", _pair("sum", "difference")),
            rpc("difference, sum", "OK difference *; sum *", _pair_of_calls("difference", "sum")),
            rpc("sum, difference", "OK sum *; difference *", _pair_of_calls("sum", "difference")),
        ],
    ),
    Check(
        57,
        "NaN and Infinity are an error in JSON, and exact in bytes",
        [
            rest(
                "JSON",
                ('400 {"error":"*"}', '422 {"error":"*"}', '500 {"error":"*"}'),
                _nonfinite({"name": "OUT_x"}),
            ),
            rest(
                "binary",
                "200 OUT_x FP32 [1,3] binary [NaN,Infinity,-Infinity]",
                _nonfinite({"name": "OUT_x", "parameters": {"binary_data": True}}),
                needs=BINARY,
            ),
            rpc(
                "raw",
                "OK OUT_x FP32 [1,3] raw [NaN,Infinity,-Infinity]",
                calls(x([1, 2], raw=[1, 2]), model="nonfinite"),
            ),
        ],
    ),
    Check(
        58,
        "BYTES that are not UTF-8 are an error in JSON",
        [
            rest(
                "FF FE",
                ('400 {"error":"*"}', '422 {"error":"*"}', '500 {"error":"*"}'),
                _not_text,
                needs=BINARY,
            )
        ],
    ),
    Check(59, "FP32 in JSON are exact", [rest("hard numbers", "equal", _round_trip)]),
    Check(
        60,
        "Accept-Encoding is honoured",
        [
            rest("gzip", f"200 encoding gzip, {_MANY} values", _compressed("gzip")),
            rest("identity", f"200 encoding none, {_MANY} values", _compressed("identity")),
        ],
    ),
]
