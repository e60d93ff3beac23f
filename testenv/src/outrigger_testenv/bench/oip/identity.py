"""A model that returns its input, on Outrigger, Triton and MLServer."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.generator import Report, Side
from outrigger_testenv.bench.oip import served
from outrigger_testenv.bench.oip.front import GRPC, LOAD, by_turns, turns_of
from outrigger_testenv.bench.setup import ONE_FRAME, Setup
from outrigger_testenv.oip import peers
from outrigger_testenv.oip.models import Served, identity

OUTRIGGER = "Outrigger"
PEERS = ("Triton", "MLServer")
"""The servers that Outrigger is compared with."""

# 80 KB of FP32.
_ROWS, _WIDTH = 1000, 20
_MODEL = identity("FP32")


def throughput(peer: str, _: Setup, effort: Effort) -> Measurement:
    """Answers a second over those of another server."""
    return _compared(peer, lambda report: report.throughput, effort)


def cpu(peer: str, _: Setup, effort: Effort) -> Measurement:
    """CPU of all processes for a request over that of another server."""
    return _compared(peer, _cpu, effort)


def _cpu(report: Report) -> float:
    times = report.json["cpu_seconds_per_request"]
    return report.cpu(*(name for name in times if name != "client"))


def _compared(peer: str, value: Callable[[Report], float], effort: Effort) -> Measurement:
    turns = _reports(turns_of(effort))
    samples = [value(turn[OUTRIGGER]) / value(turn[peer]) for turn in turns]
    runs = [report.raw() for turn in turns for report in turn.values()]
    return Measurement(samples, {"rows": _ROWS, "width": _WIDTH}, runs)


@cache
def _reports(effort: Effort) -> list[dict[str, Report]]:
    """One run for the figures of both servers. Raises Skipped if one cannot be installed."""
    with (
        tempfile.TemporaryDirectory(prefix="outrigger-bench-") as directory,
        _sides(Path(directory)) as sides,
    ):
        return by_turns(sides, LOAD, effort)


@contextmanager
def _sides(directory: Path) -> Iterator[Mapping[str, Side]]:
    """All servers with the model."""
    from outrigger_testenv import onnxmodels

    package = onnxmodels.identity(directory / "package", _WIDTH)
    models = [Served(_MODEL)]
    with (
        served.started(peers.Triton, directory / "triton", models) as triton,
        served.started(peers.MLServer, directory / "mlserver", models) as mlserver,
        served.onnx(package, "identity", directory / "onnx") as (stack, processes),
    ):
        ours = _arguments(stack.serve.config["server"]["oip"], "identity", "input")
        sides = {OUTRIGGER: Side(OUTRIGGER, ours, processes)}
        for name, peer in zip(PEERS, (triton, mlserver), strict=True):
            arguments = _arguments(peer.grpc, _MODEL, "x")
            sides[name] = Side(name, arguments, served.peer_processes(name.lower(), peer))
        yield sides


def _arguments(address: str, model: str, tensor: str) -> list[str]:
    """The generator's arguments for a server whose model has this input."""
    arguments = ["--server", address, "--model", model, "--form", GRPC]
    shape = f"{tensor}:FP32:{_ROWS},{_WIDTH}"
    return [*arguments, "--input", shape, "--frame-size", str(ONE_FRAME)]
