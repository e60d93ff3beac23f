"""An HTTPS proxy on loopback, which alone can resolve certain host names."""

import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Proxy:
    """Opens tunnels to `hosts`, a map from "name:port" to addresses.

    Other hosts are refused.
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
        """Serves one tunnel (RFC 9110, section 9.3.6)."""

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
            """Logs nothing: failures show at the user of the tunnel."""

    return Handler


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Copies bytes until either end closes."""
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # On a reset, closing both ends stops the other direction too.
        for end in (source, target):
            end.close()
