"""Cases of the checks that are calls through `tritonclient` and through KServe's client."""

from outrigger_testenv.conformance_oip.check import Case
from outrigger_testenv.conformance_oip.server import BINARY, UNTYPED, Server
from outrigger_testenv.oip.environments import KSERVE, TRITONCLIENT

_ONE = "OUT_x [1, 2] [1.0, 2.0]"
_NONE = "OUT_x [0, 2] []"
_INT64 = "OUT_x [1, 2] [-9223372036854775808, 9223372036854775807]"
_TEXTS = 'OUT_x [1, 2] ["é\\u0000", ""]'
_INPUTS = '[{"datatype":"FP32","name":"x","shape":[-1,-1]}]'
# Over gRPC the client shows numbers of 64 bits as texts.
_INPUTS_OF_CALL = '[{"datatype":"FP32","name":"x","shape":["-1","-1"]}]'

_TRITON = [
    (1, "http live", "true"),
    (1, "grpc live", "true"),
    (2, "http ready", "true"),
    (2, "grpc ready", "true"),
    (5, "http model ready", "true"),
    (5, "grpc model ready", "true"),
    (8, "http server", '["extensions","name","version"]'),
    (8, "grpc server", "true"),
    (11, "http metadata", _INPUTS),
    (11, "grpc metadata", _INPUTS_OF_CALL),
    (17, "http infer", _ONE),
    (17, "grpc infer", _ONE),
    (23, "http zero rows", _NONE),
    (23, "grpc zero rows", _NONE),
    (30, "http INT64", _INT64),
    (30, "grpc INT64", _INT64),
    (33, "http BYTES", _TEXTS),
    (33, "grpc BYTES", _TEXTS),
    (40, "http id", "one"),
    (40, "grpc id", "one"),
    (46, "http gzip request", _ONE),
    (54, "http requested", '["sum"]'),
    (54, "grpc requested", '["sum"]'),
    (55, "http order", '["difference","sum"]'),
    (55, "grpc order", '["difference","sum"]'),
    (60, "http gzip answer", _ONE),
    (67, "http binary", _ONE),
    (67, "http binary FP16", _ONE),
    (67, "http binary BYTES", _TEXTS),
    (77, "http binary zero rows", _NONE),
    (84, "grpc FP16", _ONE),
    (88, "http index", "READY"),
    (88, "grpc index", "READY"),
]
# Over REST this client reads the bodies of check 3.
_KSERVE = [
    (3, "http live", "true"),
    (1, "grpc live", "true"),
    (3, "http ready", "true"),
    (2, "grpc ready", "true"),
    (5, "http model ready", "true"),
    (5, "grpc model ready", "true"),
    (17, "http infer", _ONE),
    (17, "grpc infer", _ONE),
    (17, "grpc raw", _ONE),
    (23, "http zero rows", _NONE),
    (23, "grpc zero rows", _NONE),
    (30, "http INT64", _INT64),
    (30, "grpc INT64", _INT64),
    (40, "http id", "one"),
    (66, "http binary", _ONE),
    (84, "grpc FP16", _ONE),
]
# Inferences in JSON, which Triton's client sends without a content type. KServe's sends one.
_UNTYPED = {
    f"http {name}"
    for name in (
        *("infer", "id", "zero rows", "INT64", "BYTES", "gzip request", "gzip answer"),
        *("requested", "order"),
    )
}


def cases_of(number: int) -> list[Case]:
    """The cases of a check."""
    return [
        _case(client, *each)
        for client, table in ((TRITONCLIENT, _TRITON), (KSERVE, _KSERVE))
        for at, *each in table
        if at == number
    ]


def _case(client: str, name: str, expected: str) -> Case:
    def act(server: Server) -> str:
        return server.through(client)[name]

    is_untyped = client == TRITONCLIENT and name in _UNTYPED
    needs = BINARY if "binary" in name else UNTYPED if is_untyped else ""
    return Case(client, name, (expected,), act, (client, needs) if needs else (client,))
