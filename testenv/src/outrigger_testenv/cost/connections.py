"""Connections that send the same bytes for each request: gRPC over HTTP/2, and HTTP/1.1."""

import socket
import struct
from collections.abc import Mapping
from urllib.parse import urlsplit

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING, _GO_AWAY, _WINDOW = 0, 1, 4, 6, 7, 8
_END_STREAM = _ACK = 1
_END_HEADERS = 4
_LARGEST = 2**31 - 1
_INITIAL_WINDOW = 4
# The entries of HPACK's static table.
_STATIC = 61
# The content of the pings by which grpc-go estimates the bandwidth.
_ESTIMATE = bytes.fromhex("02041010090e0707")
# The largest frame that a peer accepts before it says more.
FRAME = 16 << 10


class Failed(RuntimeError):
    """A request got no answer with a message."""


class _Connection:
    def __init__(self, address: str):
        host, _, port = address.removeprefix("http://").rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self._received = b""

    def close(self) -> None:
        self._socket.close()

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            self._more()
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _more(self) -> None:
        more = self._socket.recv(1 << 20)
        if not more:
            raise Failed("the connection was closed")
        self._received += more


class Grpc(_Connection):
    """Calls one method. A message goes out in frames of the largest size that the peer accepts, or
    as grpc-go sends it, of which crates/server/src/listen/recorded has an example: in frames of 16
    KiB, with settings of no value, and with an update of the window and a ping for each answer.
    """

    def __init__(self, address: str, method: str, like_go: bool = False):
        super().__init__(address)
        self._headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"/{method}",
            ":authority": "localhost",
            "content-type": "application/grpc",
            "user-agent": "grpc-go/1.76.0" if like_go else "outrigger",
            "te": "trailers",
        }
        self._like_go = like_go
        self._calls = 0
        self._frame = self._window = self._stream_window = (1 << 16) - 1
        self._settled = False
        window = struct.pack(">HI", _INITIAL_WINDOW, _LARGEST)
        opening = _PREFACE + _frame(_SETTINGS, 0, 0, b"" if like_go else window)
        if not like_go:
            opening += _frame(_WINDOW, 0, 0, struct.pack(">I", _LARGEST - (1 << 16) + 1))
        self._socket.sendall(opening)
        while not self._settled:
            self._read()
        if like_go:
            self._frame = FRAME

    def __call__(self, message: bytes) -> None:
        """Sends a message and waits for the answer. Raises Failed if it is an error."""
        stream = 2 * self._calls + 1
        waiting = bytearray(_frame(_HEADERS, _END_HEADERS, stream, self._header_block()))
        self._calls += 1
        left = memoryview(struct.pack(">BI", 0, len(message)) + message)
        room = self._stream_window
        while len(left) > 0:
            while min(room, self._window) == 0:
                self._socket.sendall(waiting)
                waiting.clear()
                kind, _, at, payload = self._read()
                if kind == _WINDOW and at == stream:
                    room += struct.unpack(">I", payload)[0]
            size = min(self._frame, len(left), room, self._window)
            end = _END_STREAM if size == len(left) else 0
            waiting += _frame(_DATA, end, stream, bytes(left[:size]))
            left, room, self._window = left[size:], room - size, self._window - size
        self._socket.sendall(waiting)
        self._answer(stream)

    def _answer(self, stream: int) -> None:
        answered = 0
        while True:
            kind, flags, at, payload = self._read()
            if kind == _GO_AWAY:
                raise Failed("the server ends the connection")
            if at != stream or kind not in (_DATA, _HEADERS):
                continue
            answered += len(payload) if kind == _DATA else 0
            if flags & _END_STREAM:
                break
        if not answered:
            raise Failed("the answer is an error")
        if self._like_go:
            update = _frame(_WINDOW, 0, 0, struct.pack(">I", answered))
            self._socket.sendall(update + _frame(_PING, 0, 0, _ESTIMATE))

    def _header_block(self) -> bytes:
        """The headers: literals that enter the table at first, later their places in it."""
        if self._calls > 0:
            return bytes(0x80 | (_STATIC + 1 + at) for at in range(len(self._headers)))[::-1]
        return b"".join(
            b"\x40" + _text(name) + _text(value) for name, value in self._headers.items()
        )

    def _read(self) -> tuple[int, int, int, bytes]:
        head = self._take(9)
        size, kind = int.from_bytes(head[:3]), head[3]
        flags, stream = head[4], int.from_bytes(head[5:]) & _LARGEST
        payload = self._take(size)
        if kind == _SETTINGS and not flags & _ACK:
            for at in range(0, size, 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == _INITIAL_WINDOW:
                    self._stream_window = value
                elif name == 5:
                    self._frame = value
            self._settled = True
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW and stream == 0:
            self._window += struct.unpack(">I", payload)[0]
        return kind, flags, stream, payload


class Http(_Connection):
    """Posts to one path."""

    def __init__(self, address: str, path: str, headers: Mapping[str, str] | None = None):
        super().__init__(urlsplit(address).netloc or address)
        lines = {"host": "localhost", "content-type": "application/json", **(headers or {})}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._head = f"POST {path} HTTP/1.1\r\n{text}"

    def __call__(self, body: bytes) -> None:
        """Sends a body and waits for the answer. Raises Failed unless it is 200."""
        self._socket.sendall(f"{self._head}content-length: {len(body)}\r\n\r\n".encode() + body)
        while b"\r\n\r\n" not in self._received:
            self._more()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        status, *headers = head.decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in headers)
        answer = self._take(int(fields["content-length"]))
        if " 200 " not in status:
            raise Failed(f"{status}: {answer[:300]}")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()
