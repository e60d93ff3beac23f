"""Requests of the Open Inference Protocol by hand, also ones that no client would encode."""

from outrigger_testenv.attack import frames
from outrigger_testenv.attack.messages import field, varint
from outrigger_testenv.attack.wire import call_again, call_in_turn

INFER = "/inference.GRPCInferenceService/ModelInfer"
_MODEL = field(1, b"good/neighbour")


def tensor(datatype: bytes, sizes: bytes, contents: bytes | None = None) -> bytes:
    """An input with encoded sizes, and with typed contents if they are given."""
    typed = b"" if contents is None else field(5, contents)
    return field(5, field(1, b"x") + field(2, datatype) + field(3, sizes) + typed)


_LARGE = varint(2**32) * 2
# Tensors whose shapes, contents and lengths lie.
_WRONG = [
    tensor(b"FP32", _LARGE) + field(7, b""),
    tensor(b"FP32", varint(2**62) + varint(4)) + field(7, b""),
    tensor(b"FP32", varint(2**64 - 1)) + field(7, b"\x00" * 4),
    tensor(b"FP32", b"\x01" * 4096) + field(7, b"\x00" * 4),
    tensor(b"FP32", b"\x02") + field(7, b"\x00" * 4),
    tensor(b"FP32", b"\x01", b"") + field(7, b"\x00" * 4),
    tensor(b"FP32", b"\x01") + field(7, b"\x00" * 4) * 2,
    tensor(b"BYTES", b"\x01") + field(7, b"\xff\xff\xff\xffa"),
    tensor(b"INT32", _LARGE, field(2, b"\x01")),
    tensor(b"FP32", b"\x01", b"\x32" + varint(2**31) + b"\x00"),
    b"\x2a" + varint(2**63) + b"\x01",
    field(4, b"\x0a\x01a\x12\x00") * 1000,
    b"\xff" * 11,
    b"",
]


def wrong_tensors(address: str, seconds: float) -> None:
    """Calls with shapes that overflow, contents that do not match, and lengths that lie."""
    messages = [frames.message(_MODEL + each) for each in _WRONG]
    messages += frames.with_wrong_lengths(_MODEL)
    call_in_turn(address, INFER, messages, rate=200, seconds=seconds)


def many(
    address: str, kind: str, size: int, every: float, seconds: float, *, compressed: bool = False
) -> None:
    """Calls of this size, most of which is of one kind; the size is that before compression."""
    kinds = {
        "inputs": lambda: b"\x2a\x00" * (size // 2),
        "sizes": lambda: tensor(b"FP32", b"\x01" * size),
        "integers": lambda: tensor(b"INT64", varint(size), field(3, b"\x01" * size)),
        "texts": lambda: tensor(b"BYTES", varint(size // 2), b"\x42\x00" * (size // 2)),
        "contents": lambda: tensor(b"FP32", varint(size // 4)) + field(7, bytes(size)),
    }
    content = _MODEL + kinds[kind]()
    call_again(address, INFER, content, every=every, seconds=seconds, compressed=compressed)
