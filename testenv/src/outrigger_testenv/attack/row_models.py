"""Calls of ModelService on the listener of XGBoost Serving's interface, also ones that lie."""

from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from outrigger_testenv.attack import frames, rows
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.messages import field, varint
from outrigger_testenv.attack.wire import call_in_turn, post_in_turn

_SERVICE = "/tensorflow.serving.ModelService"
RELOAD, STATUS = f"{_SERVICE}/HandleReloadConfigRequest", f"{_SERVICE}/GetModelStatus"
# Bytes of a message that the listener reads.
_LARGEST = 64 << 10
_ANSWER = 10.0

REFUSED = ("INVALID_ARGUMENT", "NOT_FOUND")


@dataclass(frozen=True)
class Ask:
    """A message, and the names of the statuses that it may be answered with."""

    content: bytes
    wanted: Sequence[str] = ("INVALID_ARGUMENT",)


def _reload(configs: bytes) -> bytes:
    """A ReloadConfigRequest with an encoded ModelConfigList."""
    return field(1, field(1, configs))


def _config(name: bytes, more: bytes = b"") -> bytes:
    """An entry of a ModelConfigList."""
    return field(1, field(1, name) + more)


def _specific(versions: bytes) -> bytes:
    """The policy of a ModelConfig that names these encoded versions."""
    return field(7, field(102, field(1, versions)))


def _many(entry: bytes) -> bytes:
    """Repeats an entry as often as a message has room for it."""
    return entry * ((_LARGEST - 64) // len(entry))


_NAME = rows.MODEL.encode()
_PLACES = [
    b"/etc/passwd",
    b"../../../../etc",
    b"/proc/self/environ",
    b"oci:/etc",
    b"/\0",
    b"a" * (_LARGEST - 256),
]
RELOADS = [
    Ask(b""),
    Ask(_reload(b"")),
    Ask(_reload(_many(field(1, b"")))),
    # Another kind of configuration.
    Ask(field(1, field(2, field(1, b"type.googleapis.com/a")))),
    *(Ask(_reload(_config(_NAME, field(2, place)))) for place in _PLACES),
    *(Ask(_reload(_config(b"unknown/model", field(2, place)))) for place in _PLACES),
    Ask(_reload(_config(b"../../etc/passwd")), REFUSED),
    Ask(_reload(_config(b"unknown/model")), REFUSED),
    Ask(_reload(_many(_config(b"unknown/model"))), REFUSED),
    Ask(_reload(_config(b"a" * (_LARGEST - 64))), REFUSED),
    # Versions that do not exist: one, negative, and as many as there is room for.
    Ask(_reload(_config(_NAME, _specific(varint(9)))), REFUSED),
    Ask(_reload(_config(_NAME, _specific(varint(2**64 - 1)))), REFUSED),
    Ask(_reload(_config(_NAME, _specific(_many(b"\x09")))), REFUSED),
    Ask(_reload(_config(_NAME, field(8, field(1, b"live") + b"\x10\x09")))),
    Ask(_reload(_config(_NAME, _many(field(8, b""))))),
    # Its owner may ask for these, as often as there is room for them.
    Ask(_reload(_config(_NAME)), ("OK",)),
    Ask(_reload(_many(_config(_NAME))), ("OK",)),
]
# Messages that are refused before their caller's right is looked at: a list that is longer than its
# message, a text that is none, and more than the listener reads.
UNREADABLE = [
    Ask(b"\x0a" + varint(2**31) + b"\x01"),
    Ask(_reload(_config(_NAME, field(2, b"\xff")))),
    Ask(_reload(bytes(_LARGEST))),
]


def _status(spec: bytes) -> bytes:
    return field(1, field(1, _NAME) + spec)


STATUSES = [
    Ask(b""),
    Ask(field(1, b"")),
    Ask(field(1, field(1, b"unknown/model")), ("NOT_FOUND",)),
    Ask(field(1, field(1, b"../../etc/passwd")), REFUSED),
    Ask(field(1, field(1, b"a" * (_LARGEST - 64))), REFUSED),
    Ask(_status(field(2, b"\x08" + varint(2**64 - 1))), REFUSED),
    Ask(_status(field(4, b"../latest")), REFUSED),
    Ask(_status(field(4, b"a" * (_LARGEST - 64))), REFUSED),
    Ask(b"\x0a" + varint(2**63) + b"\x01"),
    Ask(field(1, field(1, bytes(_LARGEST)))),
    Ask(_status(b""), ("OK",)),
]

_PATHS = [
    "/v1/models/../../../etc/passwd",
    "/v1/models/%2e%2e/%2e%2e/etc/passwd",
    f"/v1/models/{rows.MODEL}/versions/99999999999999999999",
    f"/v1/models/{rows.MODEL}/versions/-1",
    f"/v1/models/{rows.MODEL}/versions/%00",
    "/v1/models/" + "a/" * 2000,
    "/v1/models/",
]


def reloads(address: str, seconds: float) -> None:
    """Calls HandleReloadConfigRequest with each message in turn."""
    _in_turn(address, RELOAD, [*UNREADABLE, *RELOADS], seconds)


def statuses(address: str, seconds: float) -> None:
    """Calls GetModelStatus with each message in turn."""
    _in_turn(address, STATUS, STATUSES, seconds)


def paths(address: str, seconds: float) -> None:
    """Asks for the status of versions by paths that name none."""
    requests = [
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        for path in _PATHS
    ]
    post_in_turn(address, requests, rate=100, seconds=seconds, wait=0.05)


def _in_turn(address: str, path: str, asks: Sequence[Ask], seconds: float) -> None:
    messages = [frames.message(ask.content) for ask in asks]
    messages += frames.with_wrong_lengths(asks[-1].content)
    call_in_turn(address, path, messages, rate=200, seconds=seconds)


def expect(address: str, path: str, asks: Sequence[Ask]) -> None:
    """Raises Broken if a new caller gets another answer than one that it may get."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(path)
        for number, ask in enumerate(asks):
            try:
                call(ask.content, timeout=_ANSWER)
                found, details = "OK", ""
            except grpc.RpcError as error:
                found, details = error.code().name, error.details()
            if found not in ask.wanted:
                wanted = " or ".join(ask.wanted)
                raise Broken(f"{path}, message {number}: {found} ({details}) instead of {wanted}")
