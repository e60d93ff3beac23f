"""Attackers that send large, wrong or slow requests."""

import time
import zlib
from contextlib import suppress

from outrigger_testenv.attack import frames
from outrigger_testenv.attack.messages import EXPLAIN, PREDICT, field, model, table, varint
from outrigger_testenv.attack.wire import Calls, connect, paced

MIB = 1 << 20


def empty_entries(address: str, name: str, size: int, every: float, seconds: float) -> None:
    """Calls with a map of empty entries, each of two bytes, and a deadline of 200 ms."""
    content = model(name) + field(4, b"\x0a\x00" * (size // 2))
    _call_again(address, content, every, seconds, "200m")


def user_object(address: str, name: str, size: int, every: float, seconds: float) -> None:
    """Calls whose `user_object` is a list of empty values, each of two bytes."""
    values = field(6, b"\x0a\x00" * (size // 2))
    entry = field(1, b"a") + field(2, values)
    _call_again(address, model(name) + field(5, field(1, entry)), every, seconds, "2S")


def outputs(address: str, name: str, size: int, every: float, seconds: float) -> None:
    """Calls with as many names of outputs as fit, each of two bytes."""
    content = model(name) + field(9, b"\x1a\x00" * (size // 2))
    _call_again(address, content, every, seconds, "2S")


def bomb(address: str, name: str, size: int, every: float, seconds: float) -> None:
    """Calls with a map of empty entries of this size, and a thousandth of it when compressed."""
    content = model(name) + field(4, b"\x0a\x00" * (size // 2))
    _send_again(
        address, frames.message(_gzip(content), True), every, seconds, "2S", encoding="gzip"
    )


def _gzip(content: bytes) -> bytes:
    # A deflate stream of level 9 with the header and the checksum of gzip.
    return zlib.compress(content, 9, 31)


def _call_again(address: str, content: bytes, every: float, seconds: float, deadline: str) -> None:
    _send_again(address, frames.message(content), every, seconds, deadline)


def _send_again(
    address: str, message: bytes, every: float, seconds: float, deadline: str, *, encoding: str = ""
) -> None:
    calls = None
    for _ in paced(1 / every, seconds):
        # The server may end the connection, or refuse a new one.
        with suppress(OSError):
            try:
                calls = calls or Calls(address)
                calls.call(PREDICT, message, deadline, encoding)
                calls.receive(0)
            except OSError:
                calls = None


def unread(address: str, name: str, calls: int, treatments: int, seconds: float) -> None:
    """Small calls of Explain with large answers, for which no window is ever granted."""
    connection = Calls(address, first_window=0)
    content = frames.message(model(name) + table(treatments))
    for _ in range(calls):
        with suppress(OSError):
            connection.call(EXPLAIN, content, "60S")
    # The connection stays open, and nothing of it is read.
    time.sleep(seconds)


def wrong_lengths(address: str, name: str, seconds: float) -> None:
    """Messages whose prefix says more or less than there is, or that they are compressed."""
    good = model(name)
    wrong = [
        b"\x00" + (2**32 - 1).to_bytes(4) + good,
        b"\x00" + (len(good) + 10).to_bytes(4) + good,
        b"\x00" + (1).to_bytes(4) + good,
        b"\x01" + len(good).to_bytes(4) + good,
        b"\x00\x00",
        # A field that is longer than its message.
        frames.message(varint(4 << 3 | 2) + varint(2**31) + b"x"),
    ]
    calls = None
    for step in paced(200, seconds):
        try:
            calls = calls or Calls(address)
            calls.call(PREDICT, wrong[step % len(wrong)], "2S")
            calls.receive(0)
        except OSError:
            calls = None


def json_body(
    address: str, kind: str, size: int, every: float, seconds: float, *, compressed: bool = False
) -> None:
    """Posts a JSON body of this size over TLS, again and again on new connections."""
    first, piece, last = _JSON[kind]
    content = (first + piece * (size // len(piece)) + last).encode()
    content = _gzip(content) if compressed else content
    head = (
        "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"x-request-timeout: 2s\r\nContent-Length: {len(content)}\r\nConnection: close\r\n"
        + ("Content-Encoding: gzip\r\n\r\n" if compressed else "\r\n")
    )
    for _ in paced(1 / every, seconds):
        with suppress(OSError), connect(address, True, "http/1.1") as connection:
            connection.sendall(head.encode() + content)
            connection.settimeout(every)
            connection.recv(1 << 16)


_MODEL = '{"model":{"name":"good/neighbour"},'
# The kinds of bodies: their beginning, the part that is repeated, and their end.
_JSON = {
    "nesting": ('{"user":', '{"a":', ""),
    "lists": ('{"user":{"a":[', "[],", "[]]}}"),
    "numbers": (_MODEL + '"user":{"a":[', "0,", "0]}}"),
    "treatments": (_MODEL + '"treatments":[', "{},", "{}]}"),
}


def wrong_json_lengths(address: str, seconds: float) -> None:
    """Bodies over HTTP whose length is missing, wrong, doubled or negative."""
    post = "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n"
    heads = [
        "Content-Length: 100\r\n\r\n{}",
        "Content-Length: -1\r\n\r\n{}",
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "Content-Length: 99999999999999999999\r\n\r\n{}",
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
    ]
    for step in paced(100, seconds):
        with suppress(OSError), connect(address, True, "http/1.1") as connection:
            connection.sendall((post + heads[step % len(heads)]).encode())
            connection.settimeout(0.05)
            connection.recv(1 << 16)


def predict(address: str, content: str, rate: float, seconds: float) -> None:
    """Calls with a good request, in hexadecimal digits, at a rate."""
    message, calls = frames.message(bytes.fromhex(content)), None
    for _ in paced(rate, seconds):
        try:
            calls = calls or Calls(address)
            calls.call(PREDICT, message, "10S")
            calls.receive(0)
        except OSError:
            calls = None
