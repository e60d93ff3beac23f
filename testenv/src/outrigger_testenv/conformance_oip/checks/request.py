"""Checks 17 to 26 and 35 to 42: the fields of a request."""

from typing import Any

from outrigger_testenv.conformance_oip.check import Check, rest, rpc
from outrigger_testenv.conformance_oip.rpc import infer, x
from outrigger_testenv.conformance_oip.server import FP32, Server
from outrigger_testenv.conformance_oip.tensors import tensor
from outrigger_testenv.oip.models import identity

REFUSED = '400 {"error":"*"}'
# The same for checks that are not about the content type.
REFUSED_AS_ANY = '400 *{"error":"*"}'
INVALID = "INVALID_ARGUMENT: *"

_ONE = "200 OUT_x FP32 [1,2] [1,2]"
_TWO = "200 OUT_x FP32 [2,2] [1,2,3,4]"
_OVERFLOW = 1 << 32
# A model that no other check needs afterwards.
_OVERFLOWN = identity("INT32")
_LIVES = " and then 200 OUT_x INT32 [1,2] [1,2]"


def sends(*inputs: dict[str, Any], **fields: Any):
    """An act: an inference over REST."""
    return lambda server: server.sends(*inputs, **fields)


def calls(*inputs: dict[str, Any], **fields: Any):
    """An act: an inference over gRPC."""
    return lambda server: server.infers(*inputs, **fields)


def refused(about: str, *inputs: dict[str, Any], **fields: Any):
    """A case that REST refuses."""
    return rest(about, REFUSED, sends(*inputs, **fields))


def invalid(about: str, *inputs: dict[str, Any], **fields: Any):
    """A case that gRPC refuses."""
    return rpc(about, INVALID, calls(*inputs, **fields))


def _then_lives(act):
    """The answer of an act, and that of a good request after it."""

    def both(server: Server) -> str:
        first = act(server)
        good = server.sends(tensor([1, 2], [1, 2], "INT32"), model=_OVERFLOWN)
        return f"{first} and then {good}"

    return both


def _without(field: str):
    """A request without a field."""

    def act(server: Server) -> str:
        inputs = [tensor([1, 2], [1, 2])]
        body: dict[str, Any] = {"inputs": inputs}
        (body if field == "inputs" else inputs[0]).pop(field)
        return server.infer(FP32, body).text()

    return rest(f"without {field}", f'400 {{"error":"*{field}*"}}', act)


def _pair(second: str = "b", rows: int = 1, extra: tuple[dict[str, Any], ...] = ()):
    a = tensor([1, 2], [1, 2], name="a")
    return (a, tensor([1, 2] * rows, [rows, 2], name=second), *extra)


def _raw_pair(second: str = "b", rows: int = 1, extra: tuple[dict[str, Any], ...] = ()):
    a = x([1, 2], name="a", raw=[1, 2])
    return (a, x([rows, 2], name=second, raw=[1, 2] * rows), *extra)


def _id(value: Any = None):
    def act(server: Server) -> str:
        fields = {} if value is None else {"id": value}
        answer = server.infer(FP32, {"inputs": [tensor([1, 2], [1, 2])], **fields})
        if answer.status != 200:
            return answer.text()
        return f"200 {answer.json().get('id', 'absent')}"

    return act


def _id_of_call(value: str):
    def act(server: Server) -> str:
        return f"OK {server.send(infer(FP32, x([1, 2], data=[1, 2]), id=value)).id or 'absent'}"

    return act


_EXTRA_A = tensor([1, 2], [1, 2], name="a")
_RAW_EXTRA_A = x([1, 2], name="a", raw=[1, 2])
_OVERFLOWING = [_OVERFLOW, _OVERFLOW]

CHECKS = [
    Check(
        17,
        "flat data",
        [
            rest("shape [1,2]", _ONE, sends(tensor([1, 2], [1, 2]))),
            rpc("typed", "OK OUT_x FP32 [1,2]* [1,2]", calls(x([1, 2], data=[1, 2]))),
            rpc("raw", "OK OUT_x FP32 [1,2]* [1,2]", calls(x([1, 2], raw=[1, 2]))),
        ],
    ),
    Check(
        18,
        "nested data equal to the shape",
        [rest("shape [2,2]", _TWO, sends(tensor([[1, 2], [3, 4]], [2, 2])))],
    ),
    Check(
        19,
        "nested data not equal to the shape is refused",
        [
            refused("rows of different length", tensor([[1], [2, 3, 4]], [2, 2])),
            refused("another nesting", tensor([[1, 2, 3, 4]], [2, 2])),
        ],
    ),
    Check(
        20,
        "too few or too many elements are refused",
        [
            refused("too few", tensor([1], [1, 2])),
            refused("too many", tensor([1, 2, 3], [1, 2])),
            invalid("too few", x([1, 2], data=[1])),
            invalid("too many", x([1, 2], data=[1, 2, 3])),
        ],
    ),
    Check(
        21,
        "a negative dimension is refused",
        [refused("[-1,2]", tensor([1, 2], [-1, 2])), invalid("[-1,2]", x([-1, 2], data=[1, 2]))],
    ),
    Check(22, "a dimension as float is refused", [refused("[1.0,2]", tensor([1, 2], [1.0, 2]))]),
    Check(
        23,
        "zero rows are answered with zero rows",
        [
            rest("[0,2]", "200 OUT_x FP32 [0,2] []", sends(tensor([], [0, 2]))),
            rpc("[0,2]", "OK OUT_x FP32 [0,2]* []", calls(x([0, 2], raw=[]))),
        ],
    ),
    Check(
        24,
        "a shape that overflows is refused, and the server lives",
        [
            rest(
                "2^64 elements",
                f"{REFUSED}{_LIVES}",
                _then_lives(sends(tensor([], _OVERFLOWING, "INT32"), model=_OVERFLOWN)),
            ),
            rpc(
                "2^64 elements",
                f"{INVALID}{_LIVES}",
                _then_lives(calls(x(_OVERFLOWING, "INT32", raw=[]), model=_OVERFLOWN)),
            ),
            rest(
                "2^40 elements",
                f"{REFUSED}{_LIVES}",
                _then_lives(sends(tensor([1], [1 << 20, 1 << 20], "INT32"), model=_OVERFLOWN)),
            ),
        ],
        last=True,
    ),
    Check(
        25,
        "an unknown datatype is refused, also one in lower case",
        [
            refused("FP33", tensor([1, 2], [1, 2], "FP33")),
            refused("fp32", tensor([1, 2], [1, 2], "fp32")),
            rpc("FP33", INVALID, lambda s: s.answers(_renamed("FP33"))),
            rpc("fp32", INVALID, lambda s: s.answers(_renamed("fp32"))),
        ],
    ),
    Check(
        26,
        "a datatype that is not the model's is refused",
        [
            refused("INT32", tensor([1, 2], [1, 2], "INT32")),
            invalid("INT32", x([1, 2], "INT32", raw=[1, 2])),
        ],
    ),
    Check(
        35,
        "a missing field is refused by its name",
        [_without(field) for field in ("inputs", "shape", "datatype", "data", "name")],
    ),
    Check(36, "a request without inputs is refused", [refused("[]"), invalid("no inputs")]),
    Check(
        37,
        "an unknown, missing or duplicate input is refused",
        [
            refused("unknown", *_pair("c"), model="pair"),
            refused("missing", *_pair()[:1], model="pair"),
            refused("duplicate", *_pair(extra=(_EXTRA_A,)), model="pair"),
            invalid("unknown", *_raw_pair("c"), model="pair"),
            invalid("missing", *_raw_pair()[:1], model="pair"),
            invalid("duplicate", *_raw_pair(extra=(_RAW_EXTRA_A,)), model="pair"),
        ],
    ),
    Check(
        38,
        "inputs of different numbers of rows are refused",
        [
            refused("1 and 2 rows", *_pair(rows=2), model="pair"),
            invalid("1 and 2 rows", *_raw_pair(rows=2), model="pair"),
        ],
    ),
    Check(
        39,
        "unknown keys are ignored",
        [
            rest("of the request", _ONE, sends(tensor([1, 2], [1, 2]), unknown={"a": [1]})),
            rest("of an input", _ONE, sends({**tensor([1, 2], [1, 2]), "unknown": None})),
        ],
    ),
    Check(
        40,
        "an id is echoed byte for byte, and none is invented",
        [
            rest("with id", '200 é"\\\u0001 1', _id('é"\\\u0001 1')),
            rest("without id", "200 absent", _id()),
            rpc("with id", 'OK é"\\\u0001 1', _id_of_call('é"\\\u0001 1')),
            rpc("without id", "OK absent", _id_of_call("")),
        ],
    ),
    Check(41, "an id that is a number is refused", [rest("7", REFUSED, _id(7))]),
    Check(
        42,
        "parameters are texts, numbers and booleans",
        [
            rest(
                "accepted",
                _ONE,
                sends(
                    tensor([1, 2], [1, 2], one="text"),
                    parameters={"one": "text", "two": 2, "three": 1.5, "four": True},
                ),
            ),
            refused("an object", tensor([1, 2], [1, 2]), parameters={"one": {"two": 2}}),
        ],
    ),
]


def _renamed(datatype: str):
    """A request over gRPC with another name of the datatype FP32."""
    request = infer(FP32, x([1, 2], data=[1, 2]))
    request.inputs[0].datatype = datatype
    return request
