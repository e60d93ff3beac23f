"""HTTP over raw sockets: requests that a library would refuse to send."""

import gzip
import json
import socket
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPResponse

TIMEOUT = 240.0
JSON = "application/json"
HEADER_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Answer:
    """An answer of HTTP, with the names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_json(self) -> bool:
        """True if the content type is JSON."""
        return self.headers.get("content-type", "").partition(";")[0].strip() == JSON

    def json(self) -> object:
        """The body as strict JSON. Raises ValueError."""
        return json.loads(self.body.decode(), parse_constant=_refuse)

    def text(self, *headers: str) -> str:
        """The status, the content type unless it is JSON, the body, and some headers."""
        kind = "" if self.is_json or not self.body else f"{self._type()} "
        shown = "".join(f" {name}: {self.headers.get(name.lower(), 'absent')}" for name in headers)
        return f"{self.status} {kind}{self._content()}{shown}"

    def _type(self) -> str:
        return self.headers.get("content-type", "no content type")

    def _content(self) -> str:
        """The body, as compact JSON with sorted keys if it is JSON."""
        try:
            return compact(self.json())
        except ValueError:
            return self.body.decode(errors="backslashreplace")


def compact(value: object) -> str:
    """JSON in its shortest form, with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def gzipped(body: bytes) -> bytes:
    """A body with the encoding gzip."""
    return gzip.compress(body)


def deflated(body: bytes) -> bytes:
    """A body with the encoding deflate, which is a zlib stream."""
    return zlib.compress(body)


def head(method: str, path: str, headers: Mapping[str, object]) -> bytes:
    """The beginning of a request of a connection that is closed after it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: checks", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def exchange(address: str, *parts: bytes) -> Answer:
    """Sends a request in parts over a new connection. Raises OSError or HTTPException."""
    with connection(address) as link:
        # A server may answer and close before it has read the whole body.
        with suppress(BrokenPipeError, ConnectionResetError):
            for part in parts:
                link.sendall(part)
        return receive(link)


def exchange_expecting(address: str, start: bytes, body: bytes) -> tuple[str, Answer]:
    """Sends the head of a request and, after the status 100, its body: the first status line and
    the last answer.
    """
    with connection(address) as link:
        link.sendall(start)
        first = link.recv(65536)
        line = first.split(b"\r\n")[0].decode()
        if b" 100 " not in first:
            return line, Answer(0, {}, first)
        link.sendall(body)
        return line, receive(link)


def connection(address: str) -> socket.socket:
    """A new connection."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), TIMEOUT)


def receive(link: socket.socket) -> Answer:
    """Reads an answer."""
    response = HTTPResponse(link)
    response.begin()
    body = response.read()
    return Answer(response.status, _lower(response.getheaders()), body)


def chunks(parts: Sequence[bytes]) -> bytes:
    """A body in chunks."""
    coded = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts]
    return b"".join([*coded, b"0\r\n\r\n"])


def _lower(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is no JSON")
