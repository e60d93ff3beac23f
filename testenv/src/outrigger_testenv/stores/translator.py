"""The XML interface of Google Cloud Storage in front of a server of S3.

That interface is S3's, but for the header with the condition that an object does not exist. No
emulator of Google Cloud Storage that can be installed has this interface.
"""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_LOOPBACK = "127.0.0.1"
_CONDITION = ("x-goog-if-generation-match", "0")
_CONDITION_OF_S3 = ("If-None-Match", "*")
# Moto refuses changes by nobody, and checks no signature.
_SOMEBODY = ("Authorization", "AWS key:signature")
# Headers of a connection alone.
_OF_CONNECTIONS = {"connection", "host", "transfer-encoding"}


class Translator:
    """Passes requests on to a port of loopback. `translates` is false for a store that ignores the
    condition.
    """

    def __init__(self, target: int, translates: bool = True):
        self._server = _Server((_LOOPBACK, 0), _handler(target, translates))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.port = self._server.server_port
        self.url = f"http://{_LOOPBACK}:{self.port}"

    def __enter__(self) -> "Translator":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Reports nothing: clients that are killed end their connections at any time."""


def _handler(target: int, translates: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers with what the server answers."""

        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection = http.client.HTTPConnection(_LOOPBACK, target, timeout=60)
            try:
                connection.request(self.command, self.path, content or None, self._passed_on())
                answer = connection.getresponse()
                body = answer.read()
            finally:
                connection.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {*_OF_CONNECTIONS, "date", "server"}:
                    self.send_header(name, value)
            if answer.getheader("Content-Length") is None:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any

        def _passed_on(self) -> dict[str, str]:
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in {*_OF_CONNECTIONS, _CONDITION[0], "authorization"}
            }
            headers.update([_SOMEBODY])
            if translates and self.headers.get(_CONDITION[0]) == _CONDITION[1]:
                headers.update([_CONDITION_OF_S3])
            return headers

        def log_message(self, *_: object) -> None:
            """Logs nothing: failures show at the client."""

    return Handler
