"""Servers that figures of the Open Inference Protocol are measured on."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outrigger_testenv.bench.figure import Skipped
from outrigger_testenv.bench.generator import CONTROL_PLANE
from outrigger_testenv.bench.setup import serve
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.oip import environments
from outrigger_testenv.oip.models import Served
from outrigger_testenv.oip.peers import Peer
from outrigger_testenv.processes import free_ports
from outrigger_testenv.stack import Stack

ONNX = "onnx"
"""The name of the process of ONNX Runtime in reports, and of its engine."""


@contextmanager
def started(kind: Callable[..., Peer], directory: Path, served: Sequence[Served]) -> Iterator[Peer]:
    """A running server of another project. Raises Skipped if it cannot be installed."""
    try:
        peer = kind(directory, served)
    except environments.Missing as missing:
        raise Skipped(str(missing)) from missing
    with peer:
        yield peer


def peer_processes(name: str, peer: Peer) -> dict[str, int]:
    """The processes of a server by names for the report, with those that it has started."""
    first = peer.process.pid
    others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return {name: first} | {f"{name}-{at}": int(pid) for at, pid in enumerate(others, 1)}


@contextmanager
def onnx(
    package: ModelPackage, name: str, directory: Path, **settings: Any
) -> Iterator[tuple[Stack, dict[str, int]]]:
    """A control plane that serves a package with ONNX Runtime in a process of its own, and the
    processes of both. `settings` are further ones of the engine.
    """
    # Imported here because only these figures need its libraries.
    from outrigger_testenv.onnxmodels import OnnxEngine

    (port,) = free_ports(1)
    engine = OnnxEngine(directory, directory / "onnx.log")
    overrides = {
        "server": {"oip": f"127.0.0.1:{port}"},
        "engines": {ONNX: {**engine.entry, **settings}},
        "images": {"poll_interval": "30s"},
    }
    try:
        engine.start()
        with Stack(overrides, with_registry=False, engine=False) as stack:
            serve(stack, package, name)
            yield stack, {CONTROL_PLANE: stack.serve.process.pid, ONNX: engine.process.pid}
    finally:
        engine.process.kill()
