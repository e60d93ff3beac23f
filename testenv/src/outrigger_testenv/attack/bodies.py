"""Attackers that send large, wrong or slow requests."""

import time
from contextlib import suppress

from outrigger_testenv.attack import frames
from outrigger_testenv.attack.messages import EXPLAIN, PREDICT, field, gzip, model, table, varint
from outrigger_testenv.attack.wire import Calls, call_again, call_in_turn, post_in_turn

MIB = 1 << 20


def empty_entries(address: str, name: str, size: int, every: float, seconds: float) -> None:
    """Calls with a map of empty entries, each of two bytes, and a deadline of 200 ms."""
    content = model(name) + field(4, b"\x0a\x00" * (size // 2))
    call_again(address, PREDICT, content, every=every, seconds=seconds, timeout="200m")


def user_object(address: str, name: str, size: int, every: float, seconds: float) -> None:
    """Calls whose `user_object` is a list of empty values, each of two bytes."""
    values = field(6, b"\x0a\x00" * (size // 2))
    content = model(name) + field(5, field(1, field(1, b"a") + field(2, values)))
    call_again(address, PREDICT, content, every=every, seconds=seconds)


def outputs(address: str, name: str, size: int, every: float, seconds: float) -> None:
    """Calls with as many names of outputs as fit, each of two bytes."""
    content = model(name) + field(9, b"\x1a\x00" * (size // 2))
    call_again(address, PREDICT, content, every=every, seconds=seconds)


def bomb(address: str, name: str, size: int, every: float, seconds: float) -> None:
    """Calls with a map of empty entries of this size, and a thousandth of it when compressed."""
    content = model(name) + field(4, b"\x0a\x00" * (size // 2))
    call_again(address, PREDICT, content, every=every, seconds=seconds, compressed=True)


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
    long_field = frames.message(varint(4 << 3 | 2) + varint(2**31) + b"x")
    wrong = [*frames.with_wrong_lengths(model(name)), long_field]
    call_in_turn(address, PREDICT, wrong, rate=200, seconds=seconds)


def json_body(
    address: str, kind: str, size: int, every: float, seconds: float, *, compressed: bool = False
) -> None:
    """Posts a JSON body of this size over TLS, again and again on new connections."""
    first, piece, last = _JSON[kind]
    content = (first + piece * (size // len(piece)) + last).encode()
    content = gzip(content) if compressed else content
    head = (
        "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"x-request-timeout: 2s\r\nContent-Length: {len(content)}\r\nConnection: close\r\n"
        + ("Content-Encoding: gzip\r\n\r\n" if compressed else "\r\n")
    )
    requests = [head.encode() + content]
    post_in_turn(address, requests, rate=1 / every, seconds=seconds, wait=every, tls=True)


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
    requests = [(post + each).encode() for each in heads]
    post_in_turn(address, requests, rate=100, seconds=seconds, wait=0.05, tls=True)


def predict(address: str, content: str, rate: float, seconds: float) -> None:
    """Calls with a good request, in hexadecimal digits, at a rate."""
    messages = [frames.message(bytes.fromhex(content))]
    call_in_turn(address, PREDICT, messages, rate=rate, seconds=seconds, timeout="10S")
