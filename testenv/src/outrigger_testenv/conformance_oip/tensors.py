"""Tensors as the checks send them, and the outputs of an answer as text.

An output is written `NAME DATATYPE SHAPE VALUES`, with `binary` or `raw` before its values if it is
not JSON or typed.
"""

import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from outrigger_testenv.conformance_oip.http import HEADER_LENGTH, Answer, compact

# A datatype of NumPy whose bytes are those of the protocol. BF16 is shown as its bits.
_NUMPY = {
    "BOOL": "?",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    "BF16": "<u2",
    **{f"INT{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
}


def tensor(
    data: Any, shape: Sequence[Any], datatype: str = "FP32", name: str = "x", **parameters: Any
) -> dict[str, Any]:
    """An input or output as JSON; `data` is absent if it is None."""
    made: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
    if parameters:
        made["parameters"] = parameters
    return made if data is None else {**made, "data": data}


def encoded(values: Sequence[Any], datatype: str = "FP32") -> bytes:
    """Values as raw bytes; those of BYTES are bytes."""
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(value)) + value for value in values)
    return np.array(values, _NUMPY[datatype]).tobytes()


def decoded(raw: bytes, datatype: str) -> list[Any]:
    """The values of raw bytes. Raises ValueError or KeyError."""
    if datatype == "BYTES":
        return [each.decode(errors="backslashreplace") for each in _elements(raw)]
    return np.frombuffer(raw, _NUMPY[datatype]).tolist()


def shown(name: str, datatype: str, shape: Sequence[int], values: Sequence[Any], form: str) -> str:
    """An output as text."""
    numbers = [_number(value) for value in values]
    return f"{name} {datatype} {compact(list(shape))}{form} [{','.join(numbers)}]"


def told(answer: Answer) -> str:
    """An answer to an inference over REST: its outputs, or the whole of it if there are none."""
    if answer.status != 200:
        return answer.text()
    outputs = "; ".join(shown(*each) for each in outputs_of(answer))
    return f"200 {outputs}"


def outputs_of(answer: Answer) -> Iterator[tuple[str, str, Sequence[int], list[Any], str]]:
    """The outputs: name, datatype, shape, values and form. Raises ValueError or KeyError if the
    answer is not what the protocol says.
    """
    message, rest = message_of(answer)
    for output in message["outputs"]:
        size = (output.get("parameters") or {}).get("binary_data_size")
        if size is None:
            values, form = list(_flat(output["data"])), ""
        else:
            values, form = decoded(rest[:size], output["datatype"]), " binary"
            rest = rest[size:]
        yield output["name"], output["datatype"], output["shape"], values, form
    if rest:
        raise ValueError(f"{len(rest)} bytes are left after the outputs")


def message_of(answer: Answer) -> tuple[dict[str, Any], bytes]:
    """The JSON of an answer, and the bytes behind it."""
    length = int(answer.headers.get(HEADER_LENGTH.lower(), len(answer.body)))
    start, rest = answer.body[:length], answer.body[length:]
    message = Answer(answer.status, answer.headers, start).json()
    if not isinstance(message, dict):
        raise ValueError(f"the answer is no object: {compact(message)}")
    return {key: value for key, value in message.items() if value is not None}, rest


def _flat(data: Any) -> Iterator[Any]:
    if isinstance(data, list):
        for each in data:
            yield from _flat(each)
    else:
        yield data


def _elements(raw: bytes) -> Iterator[bytes]:
    while raw:
        (length,) = struct.unpack_from("<I", raw)
        if length > len(raw) - 4:
            raise ValueError(f"an element of {length} bytes in {len(raw) - 4}")
        yield raw[4 : 4 + length]
        raw = raw[4 + length :]


def _number(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return format(np.float32(value), ".9g") if np.float32(value) == value else repr(value)
    return json.dumps(value, ensure_ascii=False)
