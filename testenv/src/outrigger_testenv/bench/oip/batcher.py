"""The batcher in front of ONNX Runtime, on and off."""

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from outrigger_testenv.bench.batching import CALLERS, LAYERS, WIDTH, check
from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.generator import Side
from outrigger_testenv.bench.messages import requests_in, save
from outrigger_testenv.bench.oip import served
from outrigger_testenv.bench.oip.front import by_turns, turns_of
from outrigger_testenv.bench.setup import COLUMNAR, Setup, load_arguments
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.stack import Stack

_MODEL = "dense"
# One run of all callers is in the engine while the next one is joined.
_BATCHER = {"max_rows": CALLERS, "max_delay": "1ms", "max_in_flight": 1}


def gain(_: Setup, effort: Effort) -> Measurement:
    """Answers a second with the batcher over those without, with 64 requests of one row in flight.
    Raises Failed if scores differ.
    """
    # Imported here because only these figures need its libraries.
    from outrigger_testenv import onnxmodels

    with ExitStack() as opened:
        temporary = tempfile.TemporaryDirectory(prefix="outrigger-bench-")
        directory = Path(opened.enter_context(temporary))
        package = onnxmodels.dense(directory / "package", LAYERS, WIDTH)
        on = opened.enter_context(_serving(package, directory / "on", batcher=_BATCHER))
        off = opened.enter_context(_serving(package, directory / "off"))
        requests = directory / "requests"
        requests.mkdir()
        save([*off[1].arguments, "--treatments", "1", "--distinct", str(CALLERS)], requests)
        check(_scores(on[0], requests), _scores(off[0], requests))
        load = ("--max", "--in-flight", str(CALLERS), "--timeout", "30s")
        sides = {"on": on[1], "off": off[1]}
        turns = by_turns(sides, load, turns_of(effort), treatments=1, connections=CALLERS)
    samples = [turn["on"].throughput / turn["off"].throughput for turn in turns]
    runs = [report.raw() for turn in turns for report in turn.values()]
    return Measurement(samples, {"callers": CALLERS}, runs)


@contextmanager
def _serving(
    package: ModelPackage, directory: Path, **settings: object
) -> Iterator[tuple[Stack, Side]]:
    """A control plane with these settings of its engine, and the way to it."""
    with served.onnx(package, _MODEL, directory, **settings) as (stack, processes):
        arguments = ["--server", stack.serve.target, "--model", _MODEL, "--form", COLUMNAR]
        yield stack, Side(directory.name, [*arguments, *load_arguments(package)], processes)


def _scores(stack: Stack, requests: Path) -> np.ndarray:
    """The scores of saved requests, which are made at the same time."""
    from outrigger.v1 import prediction_pb2 as pb

    client = stack.client()
    messages = [pb.PredictRequest.FromString(each.read_bytes()) for each in requests_in(requests)]
    with ThreadPoolExecutor(CALLERS) as callers:
        answers = list(callers.map(client.call, messages))
    return np.array([list(answer.scores.values) for answer in answers])
