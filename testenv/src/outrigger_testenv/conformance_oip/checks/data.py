"""Checks 27 to 34: the values of a tensor in JSON."""

import json
from typing import Any

from outrigger_testenv.conformance_oip.check import Case, Check, rest, rpc
from outrigger_testenv.conformance_oip.checks.request import (
    INVALID,
    REFUSED,
    calls,
    refused,
    sends,
)
from outrigger_testenv.conformance_oip.rpc import x
from outrigger_testenv.conformance_oip.server import FP32, Server
from outrigger_testenv.conformance_oip.tensors import tensor, told
from outrigger_testenv.oip.models import identity

_INT64 = [-(1 << 63), (1 << 63) - 1]
_UINT64 = [0, (1 << 64) - 1]
_TEXTS = ["é\u0000", ""]


def _identity(data: list[Any], datatype: str) -> Case:
    """REST gives back what it got."""
    seen = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    expected = f"200 OUT_x {datatype} [1,{len(data)}] {seen}"
    given = sends(tensor(data, [1, len(data)], datatype), model=identity(datatype))
    return rest(f"{datatype} {seen}", expected, given)


def _raw(data: list[Any], raw: list[Any], datatype: str) -> Case:
    """gRPC gives back the bytes that it got."""
    seen = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    expected = f"OK OUT_x {datatype} [1,{len(data)}] raw {seen}"
    given = calls(x([1, len(data)], datatype, raw=raw), model=identity(datatype))
    return rpc(f"{datatype} {seen}", expected, given)


def _refused(about: str, data: list[Any], datatype: str = "FP32") -> Case:
    return refused(about, tensor(data, [1, len(data)], datatype), model=identity(datatype))


def _token(token: str) -> Case:
    """A word in JSON that is no number."""
    body = json.dumps({"inputs": [tensor([0], [1, 1])]}).replace("[0]", f"[{token}]")

    def act(server: Server) -> str:
        return told(server.infer(FP32, body.encode()))

    return rest(token, REFUSED, act)


CHECKS = [
    Check(
        27,
        "a text or null in FP32 is refused",
        [_refused("text", ["1.5", 2]), _refused("null", [None, 2])],
    ),
    Check(28, "tokens that are no JSON are refused", [_token("NaN"), _token("Infinity")]),
    Check(
        29,
        "an integer out of range is refused, not wrapped",
        [
            _refused("INT8", [128, 1], "INT8"),
            _refused("INT32", [1, 1 << 31], "INT32"),
            _refused("INT64", [1 << 63], "INT64"),
            _refused("UINT64", [1 << 64], "UINT64"),
            rpc("INT8", INVALID, calls(x([1, 1], "INT8", data=[300]), model=identity("INT8"))),
        ],
    ),
    Check(
        30,
        "integers of 64 bits are exact",
        [
            _identity(_INT64, "INT64"),
            _identity(_UINT64, "UINT64"),
            _raw(_INT64, _INT64, "INT64"),
            _raw(_UINT64, _UINT64, "UINT64"),
        ],
    ),
    Check(31, "1.5 in INT64 is refused", [_refused("1.5", [1.5, 2], "INT64")]),
    Check(
        32,
        "BOOL is true and false; 1 and 0 are refused or coerced",
        [
            _identity([True, False], "BOOL"),
            rest(
                "1 and 0",
                (REFUSED, "200 OUT_x BOOL [1,2] [true,false]"),
                sends(tensor([1, 0], [1, 2], "BOOL"), model=identity("BOOL")),
            ),
        ],
    ),
    Check(
        33,
        "BYTES survive, also NUL and an empty text",
        [
            _identity(_TEXTS, "BYTES"),
            _raw(_TEXTS, [text.encode() for text in _TEXTS], "BYTES"),
        ],
    ),
    Check(
        34,
        "FP16 in JSON is refused with a hint",
        [
            rest(
                "FP16",
                ('400 {"error":"*binary*"}', '400 {"error":"*raw*"}', '400 {"error":"*JSON*"}'),
                sends(tensor([1, 2], [1, 2], "FP16"), model=identity("FP16")),
            )
        ],
    ),
]
