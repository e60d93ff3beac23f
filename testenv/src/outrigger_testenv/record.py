"""Records what gRPC clients send, for the test that cuts it at every byte.

`python -m outrigger_testenv.record` writes a file for each client to
crates/server/src/listen/recorded. It needs Go, Node with npm, a JDK with Maven, and cargo.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

ROOT = Path(__file__).parents[3]
CLIENTS = ROOT / "testenv/clients"
RECORDED = ROOT / "crates/server/src/listen/recorded"
METHOD = "/recorded.Service/Call"
# The most bytes of a recording.
MOST = 4096


class _Handler(grpc.GenericRpcHandler):
    """Answers every call with a message of 12 bytes."""

    def service(self, _: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda message, context: b"\x0a\x0arrrrrrrrrr")


@contextmanager
def _recording(server: int) -> Iterator[tuple[str, bytearray]]:
    """A port before the server's; yields its address and what the first connection sends."""
    recorded = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client, socket.create_connection(("127.0.0.1", server)) as there:
                back = threading.Thread(target=_pass_on, args=(there, client, lambda _: None))
                back.start()
                _pass_on(client, there, recorded.extend)
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", recorded
        thread.join()


def _pass_on(source: socket.socket, target: socket.socket, seen: Callable[[bytes], None]) -> None:
    try:
        while data := source.recv(1 << 16):
            seen(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def _run(*command: object, cwd: Path | None = None) -> None:
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


def _go(address: str) -> None:
    _run("go", "run", "./recorded", address, cwd=CLIENTS / "go")


def _python(address: str) -> None:
    with grpc.insecure_channel(address) as channel, ThreadPoolExecutor() as pool:
        call = channel.unary_unary(METHOD)
        call(b"r" * 10, timeout=10)
        list(pool.map(lambda length: call(b"r" * length, timeout=10), [700, 900]))


def _node(address: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(CLIENTS / "node", directory, dirs_exist_ok=True)
        _run("npm", "install", "--silent", cwd=Path(directory))
        _run("node", "client.js", address, cwd=Path(directory))


def _java(address: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        pom = CLIENTS / "java/pom.xml"
        _run(
            "mvn", "-q", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={directory}"
        )
        _run("java", "-cp", f"{directory}/*", CLIENTS / "java/Client.java", address)


def _tonic(address: str) -> None:
    manifest = CLIENTS / "tonic/Cargo.toml"
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    _run("cargo", "run", "-q", "--manifest-path", manifest, "--target-dir", target, "--", address)


_CLIENTS = {"go": _go, "java": _java, "node": _node, "python": _python, "tonic": _tonic}


def main() -> None:
    """Records the clients that are named, or all."""
    server = grpc.server(ThreadPoolExecutor())
    server.add_generic_rpc_handlers((_Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    RECORDED.mkdir(exist_ok=True)
    for name in sys.argv[1:] or _CLIENTS:
        with _recording(port) as (address, recorded):
            _CLIENTS[name](address)
        (RECORDED / f"{name}.h2").write_bytes(recorded[:MOST])
        print(f"{name}: {len(recorded)} bytes")
    server.stop(None)


if __name__ == "__main__":
    main()
