"""Frames of HTTP/2 by hand (RFC 9113): a library would refuse to send most of these."""

import struct
from collections.abc import Iterable, Mapping

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 4
DEFAULT_WINDOW, MAX_WINDOW = 65535, 2**31 - 1
MAX_FRAME = 16384


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame with its header of nine bytes."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(values: Mapping[int, int] | None = None) -> bytes:
    """A SETTINGS frame."""
    entries = (struct.pack(">HI", name, value) for name, value in (values or {}).items())
    return frame(SETTINGS, 0, 0, b"".join(entries))


def window(stream: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame(WINDOW, 0, stream, struct.pack(">I", increment))


def reset(stream: int) -> bytes:
    """A RST_STREAM frame with the code CANCEL."""
    return frame(RESET, 0, stream, struct.pack(">I", 8))


def block(fields: Iterable[tuple[str, str]]) -> bytes:
    """Header fields as literals without indexing (RFC 7541, section 6.2.2)."""
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields)


def grpc_block(path: str, timeout: str = "", encoding: str = "") -> bytes:
    """The header block of a call of gRPC; `timeout` is in its form, such as 200m, and `encoding`
    that of its message.
    """
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
    more = [("grpc-timeout", timeout), ("grpc-encoding", encoding)]
    return block([*fields, *(field for field in more if field[1])])


def data(stream: int, content: bytes, end: bool) -> Iterable[bytes]:
    """DATA frames of at most the default size; the last one ends the stream if `end` is set."""
    for at in range(0, len(content), MAX_FRAME):
        last = end and at + MAX_FRAME >= len(content)
        yield frame(DATA, END_STREAM if last else 0, stream, content[at : at + MAX_FRAME])


def message(content: bytes, compressed: bool = False) -> bytes:
    """A message with gRPC's prefix: whether it is compressed, and its length."""
    return bytes([compressed]) + struct.pack(">I", len(content)) + content


def with_wrong_lengths(content: bytes) -> list[bytes]:
    """The content as messages of gRPC whose prefix says more or less than there is, or that they
    are compressed, and a prefix that is cut off.
    """
    return [
        b"\x00" + (2**32 - 1).to_bytes(4) + content,
        b"\x00" + (len(content) + 10).to_bytes(4) + content,
        b"\x00" + (1).to_bytes(4) + content,
        b"\x01" + len(content).to_bytes(4) + content,
        b"\x00\x00",
    ]


def _text(value: str) -> bytes:
    encoded = value.encode()
    if len(encoded) < 127:
        return bytes([len(encoded)]) + encoded
    rest, length = len(encoded) - 127, bytearray([127])
    while rest >= 128:
        length.append(rest % 128 | 128)
        rest //= 128
    length.append(rest)
    return bytes(length) + encoded
