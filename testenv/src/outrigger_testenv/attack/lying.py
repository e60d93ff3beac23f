"""A scripted registry that lies, drips and redirects, and a host that catches what it is sent.

`python -m outrigger_testenv.attack.lying BASIC IDENTITY CATCHER` serves three addresses: a registry
for which the control plane has a password, one for which it has an identity token, and a stranger.
"""

import base64
import hashlib
import json
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import astuple, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from outrigger_testenv.attack.case import TURNS
from outrigger_testenv.images import CONFIG, INDEX, LAYER, MANIFEST
from outrigger_testenv.processes import Process, listens

PASSWORD, IDENTITY = "the-password-of-the-registry", "the-identity-token"
# The pulls of one turn that drip at the same time.
AT_ONCE = {"drip": 4, "claim": 3}
DRIP_EVERY = 5.0
GIB = 1 << 30
# Three claims leave less of the store than a good model of 600 MiB takes.
CLAIM, STORE = 5 * GIB // 2, 8 * GIB
# A line that would be a record of a change if it stood by itself in the log.
FORGED = "2026-01-01T00:00:00Z  INFO outrigger::audit: change forged"
# The text that a name contains for it, with a control sequence that clears a terminal.
FORGERY = f"a\n{FORGED}\x1b[2J"

# The kinds of repositories, and the address that serves each.
KINDS = {
    "drip": "basic",
    "claim": "basic",
    "redirect": "basic",
    "token": "identity",
    "more": "basic",
    "less": "basic",
    "endless": "basic",
    "silent": "basic",
    "headers": "basic",
    "audit": "basic",
    "audit-platform": "basic",
}
# Pulls of one turn are of repositories of their own.
REPOSITORIES = {
    f"{kind}-{number}": host
    for kind, host in KINDS.items()
    for number in range(TURNS * AT_ONCE.get(kind, 1))
}


@dataclass(frozen=True)
class Hosts:
    """The three addresses."""

    basic: str
    identity: str
    catcher: str


def credentials(hosts: Hosts) -> dict[str, Any]:
    """Docker's config.json for the two registries."""
    password = base64.b64encode(f"robot:{PASSWORD}".encode()).decode()
    return {
        "auths": {
            hosts.basic: {"auth": password},
            hosts.identity: {"auth": "", "identitytoken": IDENTITY},
        }
    }


def process(hosts: Hosts, log: Path) -> Process:
    """Starts the registry."""
    started = Process("lying registry", [sys.executable, "-m", __name__, *astuple(hosts)], log)
    started.start()
    ports = [int(host.rpartition(":")[2]) for host in astuple(hosts)]
    started.wait_until(lambda: all(listens(port) for port in ports))
    return started


def caught(hosts: Hosts) -> str:
    """All headers and bodies that the stranger has received, as text."""
    with urllib.request.urlopen(f"http://{hosts.catcher}/caught", timeout=10) as answer:
        return answer.read().decode()


_CONFIG = json.dumps(
    {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}
).encode()


def _kind(repository: str) -> str:
    return repository.rpartition("-")[0]


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _manifest(repository: str) -> bytes:
    # Each repository has a layer of its own, which no other pull has brought already.
    kind = _kind(repository)
    claimed = {"more": 10, "less": 1 << 20, "claim": CLAIM}.get(kind, 10 << 20)
    media = f"{LAYER}{FORGERY}" if kind == "audit" else LAYER
    layer = {"mediaType": media, "digest": _digest(repository.encode()), "size": claimed}
    config = {"mediaType": CONFIG, "digest": _digest(_CONFIG), "size": len(_CONFIG)}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
    return json.dumps(manifest).encode()


def _index(repository: str) -> bytes:
    # Two, because the platform of a single image is not compared.
    image = {"mediaType": MANIFEST, "digest": _digest(repository.encode()), "size": 1000}
    platforms = [{"os": f"{FORGERY}{number}", "architecture": FORGERY} for number in range(2)]
    manifests = [{**image, "platform": platform} for platform in platforms]
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    return json.dumps(index).encode()


# The manifests of these kinds: media type and content.
_WRITTEN = {"audit-platform": (INDEX, _index)}


def _zeros(handler: BaseHTTPRequestHandler, size: int) -> None:
    piece = bytes(1 << 16)
    for _ in range(size // len(piece)):
        handler.wfile.write(piece)


def _drip(handler: BaseHTTPRequestHandler) -> None:
    while True:
        handler.wfile.write(b"\0")
        time.sleep(DRIP_EVERY)


def _answer(handler: BaseHTTPRequestHandler, code: int, content: bytes, **headers: str) -> None:
    handler.send_response(code)
    for name, value in {"Content_Length": str(len(content)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


def _lying(hosts: Hosts) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Serves /v2/REPOSITORY/model by the rules of the repository."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _, _, repository, *rest = [*self.path.split("/"), "", ""]
            if self.path.startswith("/token"):
                self._token()
            elif not repository:
                _answer(self, 200, b"{}")
            elif "manifests" in rest:
                self._manifest(repository)
            elif _digest(_CONFIG) in self.path:
                _answer(self, 200, _CONFIG)
            else:
                self._layer(repository)

        do_HEAD = do_POST = do_GET

        def _manifest(self, repository: str) -> None:
            kind = _kind(repository)
            if kind == "token":
                realm = f'Bearer realm="http://{hosts.identity}/token",service="registry"'
                _answer(self, 401, b"", WWW_Authenticate=realm)
            elif kind == "redirect" and "Authorization" not in self.headers:
                _answer(self, 401, b"", WWW_Authenticate='Basic realm="registry"')
            elif kind == "silent":
                threading.Event().wait()
            elif kind == "headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                _drip(self)
            elif kind == "endless":
                self.send_response(200)
                self.send_header("Content-Type", MANIFEST)
                self.send_header("Connection", "close")
                self.end_headers()
                _zeros(self, 4 * GIB)
            else:
                media, written = _WRITTEN.get(kind, (MANIFEST, _manifest))
                content = written(repository)
                found = {"Content_Type": media, "Docker_Content_Digest": _digest(content)}
                _answer(self, 200, content, **found)

        def _layer(self, repository: str) -> None:
            kind = _kind(repository)
            if kind == "redirect":
                _answer(self, 307, b"", Location=f"http://{hosts.catcher}/layer")
                return
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            if kind == "more":
                _zeros(self, 4 * GIB)
            elif kind == "less":
                self.close_connection = True
            else:
                _drip(self)

        def _token(self) -> None:
            _answer(self, 307, b"", Location=f"http://{hosts.catcher}/token")

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    return Handler


def _catcher(hosts: Hosts) -> type[BaseHTTPRequestHandler]:
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        """Asks for credentials with a realm of its own, and keeps what it is sent."""

        def do_GET(self) -> None:
            if self.path == "/caught":
                _answer(self, 200, "\n".join(received).encode())
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            received.append(f"{self.path}\n{self.headers}\n{body.decode(errors='replace')}")
            realm = f'Bearer realm="http://{hosts.catcher}/token",service="catcher"'
            _answer(self, 401, b"", WWW_Authenticate=realm)

        do_HEAD = do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignores peers that disconnect."""


def _serve(address: str, handler: Callable[..., BaseHTTPRequestHandler]) -> threading.Thread:
    host, port = address.split(":")
    thread = threading.Thread(target=_Server((host, int(port)), handler).serve_forever)
    thread.start()
    return thread


def main() -> int:
    """Serves until it is killed."""
    hosts = Hosts(*sys.argv[1:])
    for address in (hosts.basic, hosts.identity):
        _serve(address, _lying(hosts))
    _serve(hosts.catcher, _catcher(hosts)).join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
