"""Checks 66 to 78: the binary tensor extension of REST."""

from collections.abc import Callable
from typing import Any

from outrigger_testenv.conformance_oip.check import Case, Check, rest
from outrigger_testenv.conformance_oip.checks.outputs import DIFFERENCE, PAIR, SUM
from outrigger_testenv.conformance_oip.checks.request import REFUSED, REFUSED_AS_ANY
from outrigger_testenv.conformance_oip.http import HEADER_LENGTH
from outrigger_testenv.conformance_oip.server import BINARY, FP32, OCTETS, Server
from outrigger_testenv.conformance_oip.tensors import encoded, tensor, told
from outrigger_testenv.oip.models import identity

_ONE = "200 OUT_x FP32 [1,2] [1,2]"
_BYTES = "200 OUT_x FP32 [1,2] binary [1,2]"
_SUM, _DIFFERENCE = (text.replace("] [", "] binary [") for text in (SUM, DIFFERENCE))
_RAW = encoded([1, 2])
_INPUT = tensor(None, [1, 2], binary_data_size=8)
_LIVES = f" and then {_ONE}"
_PATH = f"/v2/models/{FP32}/infer"


def _case(about: str, expected: str | tuple[str, ...], act: Callable[[Server], str]) -> Case:
    return rest(about, expected, act, needs=BINARY)


def _sent(request: dict[str, Any], *contents: bytes, **how: Any) -> Callable[[Server], str]:
    return lambda server: told(server.binary(request, *contents, **how))


def _output(name: str, **parameters: Any) -> dict[str, Any]:
    return {"name": name, "parameters": parameters}


def _wanted(*outputs: dict[str, Any], **parameters: Any) -> Callable[[Server], str]:
    """Two tensors in JSON, with outputs that are asked for."""
    request: dict[str, Any] = {"inputs": PAIR}
    if outputs:
        request["outputs"] = list(outputs)
    if parameters:
        request["parameters"] = parameters
    return lambda server: told(server.infer("pair", request))


def _form(server: Server) -> str:
    """The headers of a binary answer."""
    request = {
        "inputs": [tensor([1, 2], [1, 2])],
        "outputs": [_output("OUT_x", binary_data=True)],
    }
    answer = server.infer(FP32, request)
    start = answer.headers.get(HEADER_LENGTH.lower(), "absent")
    rest_of_body = len(answer.body) - int(start) if start != "absent" else "all"
    return f"{answer.headers.get('content-type', 'no type')}, {rest_of_body} bytes behind the JSON"


def _lives(length: object) -> Case:
    """A header that is wrong, and a good request after it."""

    def act(server: Server) -> str:
        first = told(server.binary({"inputs": [_INPUT]}, _RAW, length=length))
        return f"{first} and then {told(server.binary({'inputs': [_INPUT]}, _RAW))}"

    return _case(f"{length}", f"{REFUSED_AS_ANY}{_LIVES}", act)


def _no_header(server: Server) -> str:
    first = told(server.post(_PATH, b'{"inputs":[]}' + _RAW, Content_Type=OCTETS))
    return f"{first} and then {told(server.binary({'inputs': [_INPUT]}, _RAW))}"


def _elements(about: str, contents: bytes) -> Case:
    """BYTES of one element that are not what they say."""
    inputs = [tensor(None, [1, 1], "BYTES", binary_data_size=len(contents))]
    given = _sent({"inputs": inputs}, contents, model=identity("BYTES"))
    return _case(about, REFUSED_AS_ANY, given)


def _raw_body(model: str) -> Callable[[Server], str]:
    """A body that is only the tensor."""
    return lambda server: told(server.binary(b"", _RAW, model=model, length=0))


def _empty(server: Server) -> str:
    """An output without elements in a binary answer, and whether it can be told from JSON."""
    request = {
        "inputs": [tensor([], [0, 2])],
        "outputs": [_output("OUT_x", binary_data=True)],
    }
    answer = server.infer(FP32, request)
    has_header = HEADER_LENGTH.lower() in answer.headers
    return f"{told(answer)}, {'with' if has_header else 'without'} header"


def _lower_case(server: Server) -> str:
    start = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],'
    start += b'"parameters":{"binary_data_size":8}}]}'
    headers = {"Content-Type": OCTETS, HEADER_LENGTH.lower(): len(start)}
    return told(server.post(_PATH, start + _RAW, **headers))


_MIXED = [
    tensor(None, [1, 2], name="a", binary_data_size=8),
    tensor([3, 4], [1, 2], name="b"),
]
_BOTH = {**_INPUT, "data": [1, 2]}

CHECKS = [
    Check(66, "binary in, JSON out", [_case("FP32", _ONE, _sent({"inputs": [_INPUT]}, _RAW))]),
    Check(
        67,
        "`binary_data` of an output gives bytes",
        [
            _case("outputs", f"200 {_SUM}", _wanted(_output("sum", binary_data=True))),
            _case("form", f"{OCTETS}, 8 bytes behind the JSON", _form),
        ],
    ),
    Check(
        68,
        "`binary_data_output` without outputs gives bytes",
        [
            _case(
                "all",
                (f"200 {_SUM}; {_DIFFERENCE}", f"200 {_DIFFERENCE}; {_SUM}"),
                _wanted(binary_data_output=True),
            )
        ],
    ),
    Check(
        69,
        "`binary_data_output` holds for the outputs that are listed",
        [
            _case(
                "two listed",
                f"200 {_SUM}; {_DIFFERENCE}",
                _wanted({"name": "sum"}, {"name": "difference"}, binary_data_output=True),
            )
        ],
    ),
    Check(
        70,
        "`binary_data: false` of an output overrides it",
        [
            _case(
                "one of two",
                f"200 {SUM}; {_DIFFERENCE}",
                _wanted(
                    _output("sum", binary_data=False),
                    _output("difference", binary_data=True),
                    binary_data_output=True,
                ),
            )
        ],
    ),
    Check(
        71,
        "JSON and bytes are mixed in one message",
        [
            _case(
                "inputs",
                (f"200 {SUM}; {DIFFERENCE}", f"200 {DIFFERENCE}; {SUM}"),
                _sent({"inputs": _MIXED}, _RAW, model="pair"),
            ),
            _case(
                "inputs and outputs",
                f"200 {_SUM}; {DIFFERENCE}",
                _sent(
                    {
                        "inputs": _MIXED,
                        "outputs": [
                            _output("sum", binary_data=True),
                            _output("difference", binary_data=False),
                        ],
                    },
                    _RAW,
                    model="pair",
                ),
            ),
        ],
    ),
    Check(
        72,
        "sizes that are not the rest of the body are refused",
        [
            _case("short", REFUSED, _sent({"inputs": [_INPUT]}, _RAW[:4])),
            _case("long", REFUSED, _sent({"inputs": [_INPUT]}, _RAW, b"1234")),
            _case(
                "not the shape",
                REFUSED,
                _sent({"inputs": [tensor(None, [1, 2], binary_data_size=4)]}, _RAW[:4]),
            ),
        ],
    ),
    Check(
        73,
        "`data` and `binary_data_size` in one input are refused",
        [_case("both", REFUSED, _sent({"inputs": [_BOTH]}, _RAW))],
    ),
    Check(
        74,
        "a wrong length of the JSON is refused, and the server lives",
        [
            _case("absent", f"{REFUSED_AS_ANY}{_LIVES}", _no_header),
            *(_lives(length) for length in (100_000, -1, "abc", 1 << 31, 1 << 64)),
        ],
    ),
    Check(
        75,
        "BYTES that are not their lengths and shape are refused",
        [
            _elements("a long prefix", b"\x05\x00\x00\x00abc"),
            _elements("no whole prefix", b"\x01\x00"),
            _elements("too many", encoded([b"a", b"b"], "BYTES")),
            _elements("too few", b""),
        ],
    ),
    Check(
        76,
        "a body that is only the tensor, for models with one input",
        [
            _case("one variable dimension", _BYTES, _raw_body("rows")),
            _case("two variable dimensions", REFUSED, _raw_body(FP32)),
            _case("two inputs", REFUSED, _raw_body("pair")),
        ],
    ),
    Check(
        77,
        "a binary output without elements can be read",
        [
            rest(
                "[0,2]",
                ("200 OUT_x FP32 [0,2] binary [], with header", "200 OUT_x FP32 [0,2] [], *"),
                _empty,
                needs=BINARY,
            )
        ],
    ),
    Check(
        78,
        "the name of the header has no case",
        [_case("lower case", _ONE, _lower_case)],
    ),
]
