"""A proxy for HTTPS on loopback, and the only way to hosts that nobody else knows."""

import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Proxy:
    """Opens tunnels to the `hosts`, "name:port", at the addresses they are given with.

    Others are not reached.
    """

    def __init__(self, hosts: Mapping[str, str]):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hosts))
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(hosts: Mapping[str, str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One tunnel, RFC 9110 section 9.3.6."""

        def do_CONNECT(self) -> None:
            self.close_connection = True
            if self.path not in hosts:
                self.send_error(502, "unknown host")
                return
            host, port = hosts[self.path].rsplit(":", 1)
            with socket.create_connection((host, int(port))) as there:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=_pass_on, args=(there, self.connection))
                back.start()
                _pass_on(self.connection, there)
                back.join()

        def log_message(self, *_: object) -> None:
            """Nothing: failures show where the tunnel was wanted."""

    return Handler


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Until either end has enough."""
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # Reset: the other direction ends by it as well.
        for end in (source, target):
            end.close()
