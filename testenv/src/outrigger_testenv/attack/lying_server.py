"""A server of the Open Inference Protocol, over HTTP with JSON, that scores rows, or lies.

`python -m outrigger_testenv.attack.lying_server PORT` serves until it is killed. A request to
`/lie/NAME` sets the lie; that to `/lie/none` ends it.
"""

import gzip
import json
import math
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import reduce
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL, SCALE = "scaled", 3.0
_HEADER = "Inference-Header-Content-Length"
# More than any message may have.
_LARGE = 1 << 30
_PIECE = bytes(1 << 16)
# Longer than the deadline of any call.
_NEVER = 60.0

Answer = dict[str, Any]


def _changed(**different: Any) -> Callable[[Answer], Answer]:
    return lambda answer: {**answer, **different}


def _output(**different: Any) -> Callable[[Answer], Answer]:
    return lambda answer: {**answer, "outputs": [{**answer["outputs"][0], **different}]}


# Lies in answers that are well-formed JSON.
CHANGES: dict[str, Callable[[Answer], Answer]] = {
    "another-model": _changed(model_name="another"),
    "another-id": _changed(id="another"),
    "another-type": _output(datatype="BYTES", data=["one"]),
    "another-shape": _output(shape=[1, 1000]),
    "large-shape": _output(shape=[2**62, 4]),
    "another-output": _output(name="another"),
    "no-output": _changed(outputs=[]),
    "binary-beyond-the-body": _output(data=None, parameters={"binary_data_size": 2**40}),
    "nested": _changed(parameters=reduce(lambda value, _: [value], range(500), 1)),
}


class Server(ThreadingHTTPServer):
    """The server, with the lie that it tells."""

    daemon_threads = True
    lie = "none"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        described = {"name": MODEL, "versions": ["1"], "inputs": [], "outputs": []}
        self._answer(json.dumps(described).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path.startswith("/lie/"):
            self.server.lie = self.path.removeprefix("/lie/")
            self._answer(b"{}")
            return
        told = getattr(self, f"_{self.server.lie.replace('-', '_')}", None)
        if told:
            told()
            return
        answer = _scored(body, self.headers[_HEADER])
        change = CHANGES.get(self.server.lie, lambda answer: answer)
        self._answer(json.dumps(change(answer)).encode())

    def _answer(self, body: bytes, **headers: str) -> None:
        self.send_response(200)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _header_beyond_the_body(self) -> None:
        self._answer(b"{}", Inference_Header_Content_Length=str(2**40))

    def _no_json(self) -> None:
        self._answer(b"{" * 4096)

    def _bomb(self) -> None:
        self._answer(_bomb(), Content_Encoding="gzip")

    def _endless(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(_LARGE))
        self.end_headers()
        for _ in range(_LARGE // len(_PIECE)):
            self.wfile.write(_PIECE)

    def _dripping(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(_LARGE))
        self.end_headers()
        until = time.monotonic() + _NEVER
        while time.monotonic() < until:
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.1)

    def _silent(self) -> None:
        threading.Event().wait(_NEVER)


# The lies that are no well-formed answers.
OTHERS = [
    "header-beyond-the-body",
    "no-json",
    "bomb",
    "endless",
    "dripping",
    "silent",
]


def _bomb() -> bytes:
    return gzip.compress(bytes(_LARGE >> 2), 6)


def _scored(body: bytes, header: str | None) -> Answer:
    """The answer to a request: the sum of each row, times `SCALE`."""
    end = int(header) if header else len(body)
    request = json.loads(body[:end])
    (given,) = request["inputs"]
    rows, columns = given["shape"]
    flat = given.get("data")
    if flat is None:
        flat = struct.unpack(f"<{rows * columns}f", body[end:])
    sums = [SCALE * math.fsum(flat[at : at + columns]) for at in range(0, rows * columns, columns)]
    output = {"name": "y", "datatype": "FP32", "shape": [rows, 1], "data": sums}
    return {"model_name": MODEL, "id": request.get("id", ""), "outputs": [output]}


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
