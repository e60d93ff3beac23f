"""Connections of attackers: sockets, TLS without verification, and calls over raw HTTP/2."""

import resource
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

from outrigger_testenv.attack import frames
from outrigger_testenv.attack.messages import gzip

# Callers without a name are distinguished by their address, so the attacker has one of its own.
SOURCE = "127.0.0.66"
TIMEOUT = 10.0


def connect(address: str, tls: bool = False, protocol: str = "h2") -> socket.socket:
    """Opens a connection to "host:port" from the attacker's address."""
    host, port = address.rsplit(":", 1)
    plain = socket.create_connection((host, int(port)), TIMEOUT, (SOURCE, 0))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls:
        return plain
    return _unverified(protocol).wrap_socket(plain)


@cache
def _unverified(protocol: str) -> ssl.SSLContext:
    # A context for each connection would cost more than its handshake.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context


def many_files() -> None:
    """Raises the limit of open files of this process to its hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def paced(rate: float, seconds: float) -> Iterator[int]:
    """Counts up at a rate per second, for a time. Steps that are late are not made up for."""
    began, due, step = time.monotonic(), 0.0, 0
    while (now := time.monotonic() - began) < seconds:
        if due > now:
            time.sleep(due - now)
        yield step
        due = max(due + 1 / rate, now)
        step += 1


class Calls:
    """A connection of HTTP/2 that sends calls within the peer's windows and discards answers."""

    def __init__(self, address: str, tls: bool = False, first_window: int = frames.MAX_WINDOW):
        self._socket = connect(address, tls)
        self._stream = -1
        self._initial = frames.DEFAULT_WINDOW
        self._windows = {0: frames.DEFAULT_WINDOW}
        self._unread = b""
        self._greeted = False
        hello = frames.PREFACE + frames.settings({frames.INITIAL_WINDOW: first_window})
        grant = frames.MAX_WINDOW - frames.DEFAULT_WINDOW
        self._socket.sendall(hello + frames.window(0, grant))
        # The server's settings have its windows.
        while not self._greeted:
            self.receive(TIMEOUT)

    def call(self, path: str, content: bytes, timeout: str = "", encoding: str = "") -> None:
        """Sends a call of gRPC with one message, framed as it is."""
        self._stream += 2
        stream = self._stream
        self._windows[stream] = self._initial
        header = frames.grpc_block(path, timeout, encoding)
        self._socket.sendall(frames.frame(frames.HEADERS, frames.END_HEADERS, stream, header))
        at = 0
        # Large pieces: with a system call for each frame, a short deadline would pass meanwhile.
        while at < len(content) and (size := self._window(stream, len(content) - at)):
            end = at + size == len(content)
            self._socket.sendall(b"".join(frames.data(stream, content[at : at + size], end)))
            at += size
        self._windows.pop(stream, None)

    def receive(self, wait: float) -> None:
        """Reads what has come, for at most `wait` seconds."""
        self._socket.settimeout(wait or 0.001)
        try:
            received = self._socket.recv(1 << 20)
        except (TimeoutError, ssl.SSLWantReadError):
            return
        finally:
            self._socket.settimeout(TIMEOUT)
        if not received:
            raise ConnectionError("the peer closed the connection")
        self._unread += received
        self._take_frames()

    def close(self) -> None:
        """Closes the connection."""
        with suppress(OSError):
            self._socket.close()

    def _window(self, stream: int, wanted: int) -> int:
        """Waits for a window and takes up to `wanted` bytes of it; 0 if the call was reset."""
        until = time.monotonic() + TIMEOUT
        while stream in self._windows:
            if (size := min(self._windows[0], self._windows[stream], wanted)) > 0:
                self._windows[0] -= size
                self._windows[stream] -= size
                return size
            if time.monotonic() > until:
                raise TimeoutError("no window")
            self.receive(0.05)
        return 0

    def _take_frames(self) -> None:
        while len(self._unread) >= 9:
            length = int.from_bytes(self._unread[:3])
            if len(self._unread) < 9 + length:
                return
            kind, flags, stream = struct.unpack(">BBI", self._unread[3:9])
            self._take(kind, flags, stream, self._unread[9 : 9 + length])
            self._unread = self._unread[9 + length :]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == frames.WINDOW and (stream == 0 or stream in self._windows):
            self._windows[stream] += struct.unpack(">I", payload)[0]
        elif kind == frames.SETTINGS and not flags & frames.ACK:
            self._greeted = True
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == frames.INITIAL_WINDOW:
                    self._initial = value
            self._socket.sendall(frames.frame(frames.SETTINGS, frames.ACK, 0))
        elif kind == frames.RESET:
            # The rest of this call is not wanted; it is sent no further window.
            self._windows.pop(stream, None)
        elif kind == frames.PING and not flags & frames.ACK:
            self._socket.sendall(frames.frame(frames.PING, frames.ACK, 0, payload))


def call_in_turn(
    address: str,
    path: str,
    messages: Sequence[bytes],
    *,
    rate: float,
    seconds: float,
    timeout: str = "2S",
    encoding: str = "",
) -> None:
    """Sends calls of gRPC with these framed messages in turn, at a rate per second, on one
    connection; opens another one when the server has ended it or refused one.
    """
    calls = None
    for step in paced(rate, seconds):
        try:
            calls = calls or Calls(address)
            calls.call(path, messages[step % len(messages)], timeout, encoding)
            calls.receive(0)
        except OSError:
            if calls:
                calls.close()
            calls = None


def call_again(
    address: str,
    path: str,
    content: bytes,
    *,
    every: float,
    seconds: float,
    timeout: str = "2S",
    compressed: bool = False,
) -> None:
    """Sends calls of gRPC with this content, compressed with gzip or as it is, one in `every`
    seconds.
    """
    message = frames.message(gzip(content) if compressed else content, compressed)
    encoding = "gzip" if compressed else ""
    rate = 1 / every
    call_in_turn(
        address, path, [message], rate=rate, seconds=seconds, timeout=timeout, encoding=encoding
    )


def post_in_turn(
    address: str,
    requests: Sequence[bytes],
    *,
    rate: float,
    seconds: float,
    wait: float,
    tls: bool = False,
) -> None:
    """Sends these requests of HTTP/1 in turn, at a rate per second, each on a connection of its
    own, and reads the beginning of each answer for at most `wait` seconds.
    """
    for step in paced(rate, seconds):
        with suppress(OSError), connect(address, tls, "http/1.1") as connection:
            connection.sendall(requests[step % len(requests)])
            connection.settimeout(wait)
            connection.recv(1 << 16)
