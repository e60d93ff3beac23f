"""Checks 61 and 62: the form of errors."""

import re
from collections.abc import Iterator

from outrigger_testenv.conformance_oip.check import Check, rest, rpc
from outrigger_testenv.conformance_oip.checks.health import ABSENT, LIVE
from outrigger_testenv.conformance_oip.checks.request import INVALID, REFUSED_AS_ANY, calls, sends
from outrigger_testenv.conformance_oip.http import Answer
from outrigger_testenv.conformance_oip.rpc import x
from outrigger_testenv.conformance_oip.server import FP32, Server
from outrigger_testenv.conformance_oip.tensors import tensor

_ID = "check-61"
# Signs of a stack trace.
_TRACE = re.compile(r"Traceback|\.(py|rs|cc):\d+|File \\?\"")


def _errors(server: Server) -> Iterator[tuple[str, Answer]]:
    """Errors of all kinds, with what caused them."""
    good = [tensor([1, 2], [1, 2])]
    yield "unknown path", server.get("/v2/nothing")
    yield "wrong method", server.get(LIVE, "POST")
    yield "unknown model", server.infer(ABSENT, {"id": _ID, "inputs": good})
    yield "bad JSON", server.infer(FP32, b"{")
    yield "bad shape", server.infer(FP32, {"id": _ID, "inputs": [tensor([1], [1, 2])]})
    yield "bad type", server.infer(FP32, {"id": _ID, "inputs": [tensor([1, 2], [1, 2], "FP33")]})
    yield "no inputs", server.infer(FP32, {"id": _ID})
    yield "bad header", server.binary({"id": _ID, "inputs": good}, length=-1)
    yield "failing model", server.infer("failing", {"id": _ID, "inputs": good})


def _forms(server: Server) -> str:
    """The errors that are not of the form of the protocol."""
    wrong = [
        f"{name}: {answer.text()}" for name, answer in _errors(server) if not _is_plain(answer)
    ]
    return "; ".join(wrong) or "all plain"


def _is_plain(answer: Answer) -> bool:
    """True if an answer is an object of JSON with a text under `error`, and shows no stack."""
    try:
        message = answer.json()
    except ValueError:
        return False
    is_text = isinstance(message, dict) and isinstance(message.get("error"), str)
    return answer.is_json and is_text and not _TRACE.search(message["error"])


def _identified(server: Server) -> str:
    """Reports if an error names its request."""
    answer = server.infer(FP32, {"id": _ID, "inputs": [tensor([1], [1, 2])]})
    named = [name for name in answer.headers if name.endswith("request-id")]
    in_text = _ID in answer.body.decode(errors="replace")
    return "named" if named or in_text or _ID in answer.headers.values() else answer.text()


CHECKS = [
    Check(
        61,
        "every error is JSON with `error`, and names its request",
        [
            rest("errors of all kinds", "all plain", _forms),
            rest("request id", "named", _identified),
        ],
    ),
    Check(
        62,
        "a failing model is told from bad data",
        [
            rest(
                "model",
                '500 *{"error":"*"}',
                sends(tensor([1, 2], [1, 2]), model="failing"),
            ),
            rest("data", REFUSED_AS_ANY, sends(tensor([1], [1, 2]), model="failing")),
            rpc("model", "INTERNAL: *", calls(x([1, 2], raw=[1, 2]), model="failing")),
            rpc("data", INVALID, calls(x([1, 2], raw=[1]), model="failing")),
        ],
    ),
]
