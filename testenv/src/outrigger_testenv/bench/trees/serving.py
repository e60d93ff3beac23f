"""Tree models as they are served: beside their kernel, MLServer, and an application that calls
XGBoost in its own process.
"""

import json
import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from outrigger_testenv.attack.messages import field, varint
from outrigger_testenv.bench import core
from outrigger_testenv.bench.figure import Effort, Failed, Measurement
from outrigger_testenv.bench.generator import CONTROL_PLANE, FRAME, Side, run
from outrigger_testenv.bench.messages import Messages, frames_of
from outrigger_testenv.bench.setup import COLUMNAR, Setup, serve
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.bench.trees import cache
from outrigger_testenv.bench.trees.machine import machine
from outrigger_testenv.bench.trees.models import models
from outrigger_testenv.bench.trees.workers import OURS, Worker, program, started
from outrigger_testenv.builder import ModelPackage, tree_package
from outrigger_testenv.features import TREATMENT, USER, numeric
from outrigger_testenv.packing import pack
from outrigger_testenv.processes import Process, free_ports
from outrigger_testenv.stack import Stack

MODEL, SERVED = "B", "trees"
"""The model that is served, and its name there."""

TREATMENTS = 1000
MLSERVER = ("mlserver==1.7.1", "mlserver-xgboost==1.7.1", "xgboost==3.2.0")

# The columns of the model, of which the first ones are the user's.
_COLUMNS, _OF_USER = 100, 20
# The part of the application's capacity at which its latency is measured.
_LOAD = 0.7
_INFER = "/inference.GRPCInferenceService/ModelInfer"
_TIMEOUT = 30.0
# Sending processes, and the requests that each has in flight.
_SENDERS, _IN_FLIGHT = 2, 8


@contextmanager
def served() -> Iterator[tuple[Stack, ModelPackage]]:
    """A control plane that serves the model's margins, and the package."""
    import xgboost

    features = [numeric(f"u{at}", entity=USER, required=True) for at in range(_OF_USER)]
    features += [
        numeric(f"t{at}", entity=TREATMENT, required=True) for at in range(_OF_USER, _COLUMNS)
    ]
    booster = xgboost.Booster(model_file=_file(".ubj"))
    with (
        tempfile.TemporaryDirectory(prefix="outrigger-bench-") as directory,
        Stack({"images": {"poll_interval": "30s"}}, with_registry=False, engine=False) as stack,
    ):
        package = tree_package(booster, features, Path(directory), output="margin")
        serve(stack, package, SERVED)
        yield stack, package


def latency(_: Setup, effort: Effort) -> Measurement:
    """The median latency of one caller over the median time of the kernel for as many rows. The
    control plane has one processor, so that it cannot divide a call among several.
    """
    kernel = Worker(OURS, [program(), "scores", OURS, _model()])
    with ExitStack() as running:
        with _one_processor():
            stack, package = running.enter_context(served())
        running.enter_context(started(kernel))
        arguments = ["--server", stack.serve.target, "--model", SERVED, "--form", COLUMNAR]
        arguments += ["--package", str(package.directory), "--frame-size", str(FRAME)]
        side = Side("control plane", arguments, {CONTROL_PLANE: stack.serve.process.pid})
        load = ("--max", "--in-flight", "1")
        turns = in_turns(
            effort.repeats,
            lambda: run(side, load, effort, treatments=TREATMENTS, connections=1),
            lambda: kernel.ask("time", MODEL, TREATMENTS),
        )
    samples = [report.json["latency_ms"]["p50"] / 1e3 / seconds for report, seconds in turns]
    runs = [{"kernel_seconds": seconds, **report.raw()} for report, seconds in turns]
    return Measurement(samples, {"treatments": TREATMENTS}, runs)


@contextmanager
def _one_processor() -> Iterator[None]:
    """Processes that start within it have one processor."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_of_them)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def over_mlserver(treatments: int, _: Setup, effort: Effort) -> Measurement:
    """Answers a second over those of MLServer with the same model and rows, both over gRPC's C
    core. Raises Failed if scores differ, Skipped if MLServer cannot be installed.
    """
    program = cache.environment("mlserver", MLSERVER) / "bin" / "mlserver"
    with served() as (stack, package), _mlserver(program, stack.logs) as (web, target):
        batch = Messages(package).of(stack.serve.target, SERVED, COLUMNAR, treatments)
        tables = [
            pack(package.metadata, *frames_of(request))["features"] for request in batch.requests
        ]
        _check(web, tables[0], batch.scores[0])
        ours = [request.read_bytes() for request in batch.requests]
        theirs = [inference(table) for table in tables]
        turns = in_turns(
            effort.repeats,
            lambda: _throughput(stack.serve.target, core.PREDICT, ours, effort),
            lambda: _throughput(target, _INFER, theirs, effort),
        )
    samples = [one / other for one, other in turns]
    conditions = {"in_flight": _SENDERS * _IN_FLIGHT, "requirements": MLSERVER}
    return Measurement(samples, conditions, [{"answers_a_second": turns}])


def p99(_: Setup, effort: Effort) -> Measurement:
    """The 99th percentile of GBDT+FM in the process of its callers over that of XGBoost 1.5.0 with
    OpenMP on all cores, in an open loop at 70 % of the latter's capacity.
    """
    # XGBoost Serving has no setting for its threads either.
    threads = {"OMP_NUM_THREADS": str(os.cpu_count())}
    command = partial(_callers, machine())
    ours = Worker(OURS, command(OURS))
    other = Worker("XGBoost 1.5.0", command(cache.xgboost(cache.OLDEST)), threads)
    with started(ours, other):
        rate = _LOAD * other.ask("capacity", effort.measured)
        turns = in_turns(
            effort.repeats,
            lambda: ours.ask("latency", rate, effort.measured),
            lambda: other.ask("latency", rate, effort.measured),
        )
    samples = [one / another for one, another in turns]
    return Measurement(samples, {"calls_a_second": rate}, [{"seconds": turns}])


def _callers(directory: Path, library: object) -> list[object]:
    return [program(), "callers", library, directory]


def _model() -> Path:
    return next(path for path in models() if path.name == MODEL)


def _file(ending: str) -> Path:
    return _model().with_suffix(ending)


@contextmanager
def _mlserver(program: Path, logs: Path) -> Iterator[tuple[str, str]]:
    """MLServer with the model, whose values are its margins: its addresses for HTTP and gRPC."""
    web, grpc, metrics = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="outrigger-mlserver-") as directory:
        settings = {"host": "127.0.0.1", "http_port": web, "grpc_port": grpc}
        settings |= {"metrics_port": metrics, "parallel_workers": 0, "debug": False}
        home = Path(directory)
        (home / "settings.json").write_text(json.dumps(settings))
        model = home / SERVED
        model.mkdir()
        shutil.copy(_file(".raw.json"), model / "model.json")
        described = {"name": SERVED, "implementation": "mlserver_xgboost.XGBoostModel"}
        described["parameters"] = {"uri": "./model.json", "version": "v1"}
        (model / "model-settings.json").write_text(json.dumps(described))
        process = Process("MLServer", [program, "start", home], logs / "mlserver.log")
        address = f"http://127.0.0.1:{web}"
        try:
            process.start()
            # Importing its libraries takes seconds, and more than a minute on a busy machine.
            process.wait_until(lambda: _answers(f"{address}/v2/models/{SERVED}/ready"), 300)
            yield address, f"127.0.0.1:{grpc}"
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def inference(rows: np.ndarray) -> bytes:
    """A ModelInferRequest of the Open Inference Protocol with one tensor as bytes."""
    shape = b"".join(varint(size) for size in rows.shape)
    tensor = field(1, b"rows") + field(2, b"FP32") + field(3, shape)
    return field(1, SERVED.encode()) + field(5, tensor) + field(7, rows.astype("<f4").tobytes())


def _check(address: str, rows: np.ndarray, scores: np.ndarray) -> None:
    """Compares MLServer's scores with those of the model. Raises Failed."""
    tensor = {
        "name": "rows",
        "datatype": "FP32",
        "shape": rows.shape,
        "data": rows.ravel().tolist(),
    }
    body = json.dumps({"inputs": [tensor]}).encode()
    request = urllib.request.Request(
        f"{address}/v2/models/{SERVED}/infer", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
        got = np.array(json.load(answer)["outputs"][0]["data"])
    if got.shape != scores.shape or not np.allclose(got, scores, atol=1e-5):
        raise Failed("MLServer's scores are not those of the model")


def _throughput(target: str, method: str, requests: Sequence[bytes], effort: Effort) -> float:
    """Answers a second in a closed loop. Raises Failed if requests fail."""
    share = core.Share(target, tuple(requests), 1, _IN_FLIGHT, _TIMEOUT, method)
    counts, _ = core.measure([share] * _SENDERS, effort.warmup, effort.measured, ())
    if counts.errors or not counts.latencies:
        raise Failed(f"{method}: {dict(counts.errors) or 'no answers'}")
    return len(counts.latencies) / effort.measured
