"""Checks 79 to 87: gRPC."""

import struct
from collections.abc import Callable

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from outrigger_testenv.conformance_oip import rpc as calling
from outrigger_testenv.conformance_oip.check import Case, Check, rpc
from outrigger_testenv.conformance_oip.checks.health import ABSENT, NO_VERSION
from outrigger_testenv.conformance_oip.checks.request import INVALID, calls
from outrigger_testenv.conformance_oip.http import TIMEOUT
from outrigger_testenv.conformance_oip.rpc import infer, x
from outrigger_testenv.conformance_oip.server import FP32, LIMIT, Server
from outrigger_testenv.conformance_oip.tensors import encoded
from outrigger_testenv.oip.models import identity

_ONE = x([1, 2], raw=[1, 2])
_TYPED = x([1, 2], data=[1, 2])
_RAW = encoded([1, 2])
_NOT_FOUND = "NOT_FOUND: *"
_SIX = {
    "ServerLive": {},
    "ServerReady": {},
    "ModelReady": {"name": FP32},
    "ServerMetadata": {},
    "ModelMetadata": {"name": FP32},
}
# A message of this size must pass.
_LARGE = 64 << 20
# The bits of 1 and 2.5 in BF16.
_BF16 = [0x3F80, 0x4020]


def _six(server: Server) -> str:
    """The calls of the protocol that do not succeed."""
    results = {name: server.calls(name, str, **fields) for name, fields in _SIX.items()}
    results["ModelInfer"] = server.infers(_ONE)
    failed = [f"{name} {text}" for name, text in results.items() if not text.startswith("OK")]
    return ", ".join(failed) or "all six"


def _changed(change: Callable[[calling.Request], object], *inputs) -> Callable[[Server], str]:
    """The answer to a request that is changed before it is sent."""

    def act(server: Server) -> str:
        request = infer(FP32, *(inputs or [_ONE]))
        change(request)
        return server.answers(request)

    return act


def _never_both(server: Server) -> str:
    """Reports if an answer has both raw contents and the field of typed ones."""
    answers = [server.send(infer(FP32, each)) for each in (_ONE, _TYPED)]
    both = [
        each.raw_output_contents and any(output.HasField("contents") for output in each.outputs)
        for each in answers
    ]
    return "both" if any(both) else "never both"


def _two_fields(request: calling.Request) -> None:
    request.inputs[0].contents.int64_contents.extend([1, 2])


def _other_field(request: calling.Request) -> None:
    contents = request.inputs[0].contents
    contents.ClearField("fp32_contents")
    contents.int_contents.extend([1, 2])


def _typed_half(request: calling.Request) -> None:
    request.inputs[0].datatype = "FP16"


def _bytes(about: str, raw: bytes) -> Case:
    """BYTES of one element that are not what they say."""
    given = calls(x([1, 1], "BYTES", raw=raw), model=identity("BYTES"))
    return rpc(about, INVALID, given)


def _half(server: Server) -> str:
    """Typed values of FP32 for the model of FP16."""
    request = infer(identity("FP16"), _TYPED, outputs=[{"name": "OUT_x"}])
    _typed_half(request)
    return server.answers(request)


def _large(size: int) -> Callable[[Server], str]:
    """The number of bytes that come back of a message."""

    def act(server: Server) -> str:
        count = size // 4
        request = infer(FP32, x([1, count], raw=bytes(4 * count)))
        return f"OK {len(server.send(request).raw_output_contents[0])} bytes"

    return act


def _too_large(server: Server) -> str:
    return _large(server.largest + (1 << 20))(server)


def _health(service: str) -> Callable[[Server], str]:
    def act(server: Server) -> str:
        stub = health_pb2_grpc.HealthStub(server.channel())
        request = health_pb2.HealthCheckRequest(service=service)
        status = stub.Check(request, timeout=TIMEOUT).status
        return health_pb2.HealthCheckResponse.ServingStatus.Name(status)

    return act


def _reflection(server: Server) -> str:
    stub = reflection_pb2_grpc.ServerReflectionStub(server.channel())
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=TIMEOUT)
    return f"OK {sorted(each.name for each in answer.list_services_response.service)}"


def _unknown(name: str, model: str, version: str = "") -> Case:
    return rpc(
        f"{name}, {'version' if version else 'model'}",
        _NOT_FOUND,
        lambda server: server.calls(name, str, name=model, version=version),
    )


CHECKS = [
    Check(79, "the six calls of package `inference`", [rpc("all", "all six", _six)]),
    Check(
        80,
        "an answer is raw if the request is",
        [
            rpc("raw", "OK OUT_x FP32 [1,2] raw [1,2]", calls(_ONE)),
            rpc("typed", "OK OUT_x FP32 [1,2] [1,2]", calls(_TYPED)),
        ],
    ),
    Check(
        81,
        "raw and typed contents are never in one message",
        [
            rpc(
                "empty contents",
                INVALID,
                _changed(lambda request: request.inputs[0].contents.SetInParent()),
            ),
            rpc(
                "both",
                INVALID,
                _changed(lambda request: request.inputs[0].contents.fp32_contents.extend([1, 2])),
            ),
            rpc("answers", "never both", _never_both),
        ],
    ),
    Check(
        82,
        "raw contents that are not those of the inputs are refused",
        [
            rpc("one more", INVALID, _changed(lambda r: r.raw_input_contents.append(_RAW))),
            rpc(
                "none", INVALID, _changed(lambda request: request.ClearField("raw_input_contents"))
            ),
            rpc("too short", INVALID, calls(x([1, 2], raw=_RAW[:4]))),
            rpc("too long", INVALID, calls(x([1, 2], raw=_RAW + b"1234"))),
        ],
    ),
    Check(
        83,
        "typed contents are in the field of the datatype",
        [
            rpc("another field", INVALID, _changed(_other_field, _TYPED)),
            rpc("two fields", INVALID, _changed(_two_fields, _TYPED)),
        ],
    ),
    Check(
        84,
        "FP16 and BF16 are raw; BYTES have lengths",
        [
            rpc(
                "FP16",
                "OK OUT_x FP16 [1,2] raw [1,2.5]",
                calls(x([1, 2], "FP16", raw=[1, 2.5]), model=identity("FP16")),
            ),
            rpc(
                "BF16",
                f"OK OUT_x BF16 [1,2] raw [{_BF16[0]},{_BF16[1]}]",
                calls(x([1, 2], "BF16", raw=_BF16), model=identity("BF16")),
            ),
            rpc("typed FP16", INVALID, _half),
            _bytes("a long prefix", struct.pack("<I", 5) + b"abc"),
            _bytes("no whole prefix", b"\x01\x00"),
            _bytes("too many", encoded([b"a", b"b"], "BYTES")),
        ],
    ),
    Check(
        85,
        "unknown is NOT_FOUND, a fault of a model INTERNAL",
        [
            rpc("ModelInfer, model", _NOT_FOUND, calls(_ONE, model=ABSENT)),
            rpc("ModelInfer, version", _NOT_FOUND, calls(_ONE, model_version=NO_VERSION)),
            _unknown("ModelMetadata", ABSENT),
            _unknown("ModelMetadata", FP32, NO_VERSION),
            _unknown("ModelReady", ABSENT),
            _unknown("ModelReady", FP32, NO_VERSION),
            rpc("a failing model", "INTERNAL: *", calls(_ONE, model="failing")),
        ],
    ),
    Check(
        86,
        "messages of 64 MiB pass; over the limit is RESOURCE_EXHAUSTED",
        [
            rpc("64 MiB", f"OK {_LARGE} bytes", _large(_LARGE)),
            rpc("over the limit", "RESOURCE_EXHAUSTED: *", _too_large, needs=LIMIT),
        ],
    ),
    Check(
        87,
        "grpc.health.v1 by model, and reflection",
        [
            rpc("health", "SERVING", _health("")),
            rpc("health of a model", "SERVING", _health(FP32)),
            rpc("health of an unknown model", _NOT_FOUND, _health(ABSENT)),
            rpc("reflection", f"OK *'{calling.SERVICE}'*", _reflection),
        ],
    ),
]
