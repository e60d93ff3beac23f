"""The cost of a request to the same model in three forms, for the engine called directly."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from outrigger_testenv.bench import core
from outrigger_testenv.bench.figure import (
    MICROSECONDS,
    RATIO,
    Effort,
    Failed,
    Figure,
    Measurement,
    at_most,
)
from outrigger_testenv.bench.generator import ENGINE
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.bench.spread import in_turns

NAMES = ("per-feature", "example", "packed")
PACKED = "packed"
# The treatments of a request: those of the figures' values, and the others of the page.
USUAL = 1000
TREATMENTS = (10, 100, USUAL)
_METHOD = "/tensorflow.serving.PredictionService/Predict"
_TIMEOUT = 10.0
# Scores of differently packed rows differ by rounding.
_TOLERANCE = 1e-5
_START = 1
# There are many runs, whose values hardly differ.
_TURNS, _WARMUP, _MEASURED = 3, 0.4, 1.2

Run = Mapping[str, Any]


def cost(name: str, _: Setup, effort: Effort) -> Measurement:
    """The engine's CPU for a request of 1,000 treatments, in microseconds."""
    turns = _turns(effort)
    runs = [run for turn in turns for run in turn if run["layout"] == name]
    usual = [_run(turn, name) for turn in turns]
    means = {key: median(run[key] for run in usual) for key in ("p50_us", "p99_us", "bytes")}
    return Measurement([run["cpu_us"] for run in usual], means, runs)


def packed_over_others(key: str, _: Setup, effort: Effort) -> Measurement:
    """A cost of the packed form over that of the cheaper one of the others."""
    others = [name for name in NAMES if name != PACKED]
    return Measurement(
        [
            _run(turn, PACKED)[key] / min(_run(turn, name)[key] for name in others)
            for turn in _turns(effort)
        ]
    )


def _run(turn: Sequence[Run], name: str) -> Run:
    return next(run for run in turn if run["layout"] == name and run["treatments"] == USUAL)


@cache
def _turns(effort: Effort) -> list[tuple[Run, ...]]:
    """The runs of all layouts and sizes, by turns."""
    with (
        tempfile.TemporaryDirectory(prefix="outrigger-bench-") as directory,
        _engine(Path(directory)) as (address, process, requests),
    ):
        sides = [partial(_measure, request, address, process, effort) for request in requests]
        return in_turns(min(_TURNS, effort.repeats), *sides)


@dataclass(frozen=True)
class _Request:
    """A request of a layout, as it is sent."""

    layout: str
    treatments: int
    message: bytes


@contextmanager
def _engine(directory: Path) -> Iterator[tuple[str, int, list[_Request]]]:
    """An engine that serves all layouts: its address, its process, and the requests. Raises Failed
    if the layouts have different scores.
    """
    # Imported here because importing TensorFlow takes seconds.
    from tensorflow_serving.apis.predict_pb2 import PredictRequest

    from outrigger_testenv.bench.bare_engine import output, pid, serving
    from outrigger_testenv.bench.layouts import LAYOUTS

    bases = {}
    for layout in LAYOUTS:
        built = layout.build(directory / f"{layout.name}-built")
        bases[layout.name] = directory / layout.name
        bases[layout.name].mkdir()
        built.rename(bases[layout.name] / "1")
    requests = [
        _Request(layout.name, treatments, layout.request(treatments))
        for layout in LAYOUTS
        for treatments in TREATMENTS
    ]
    with serving(directory / "engine", bases) as (engine, client):
        usual = [request for request in requests if request.treatments == USUAL]
        calls = [client.send(PredictRequest.FromString(each.message)) for each in usual]
        scores = [output(call) for call in calls]
        for request, own in zip(usual, scores, strict=True):
            if not np.allclose(own, scores[0], atol=_TOLERANCE):
                raise Failed(f"{request.layout} and {usual[0].layout} have different scores")
        yield engine.endpoint, pid(engine.process), requests


def _measure(request: _Request, address: str, process: int, effort: Effort) -> Run:
    """Sends the same request again and again, one at a time. Raises Failed if one fails."""
    share = core.Share(address, (request.message,), 1, 1, _TIMEOUT, _METHOD)
    seconds = min(_MEASURED, effort.measured)
    counts, cpu = core.measure([share], _WARMUP, seconds, [(ENGINE, process)])
    answered = len(counts.latencies)
    if counts.errors or not answered:
        raise Failed(f"{request.layout}: {answered} answers, {dict(counts.errors)}")
    p50, p99 = np.quantile(counts.latencies, [0.5, 0.99]) * 1e6
    return {
        "layout": request.layout,
        "treatments": request.treatments,
        "requests": answered,
        "seconds": seconds,
        "p50_us": float(p50),
        "p99_us": float(p99),
        "cpu_us": cpu[ENGINE] * 1e6 / answered,
        "bytes": len(request.message),
    }


def _seconds(effort: Effort) -> float:
    runs = min(_TURNS, effort.repeats) * len(NAMES) * len(TREATMENTS)
    return runs * (_START + _WARMUP + min(_MEASURED, effort.measured)) / len(LAYOUT_FIGURES)


def _cost(name: str, about: str) -> Figure:
    return Figure(
        f"layout-{name}",
        f"CPU of the engine for a request of 1,000 treatments, {about}",
        MICROSECONDS,
        partial(cost, name),
        None,
        _seconds,
    )


def _packed(name: str, key: str, about: str) -> Figure:
    return Figure(
        f"layout-packed-{name}",
        f"{about} of the packed form, over the less of the other two",
        RATIO,
        partial(packed_over_others, key),
        at_most(1),
        _seconds,
    )


# Measuring the first of these figures measures all of them.
LAYOUT_FIGURES = (
    _cost("per-feature", "one tensor for each feature"),
    _cost("example", "a tf.Example for each treatment"),
    _cost("packed", "one tensor of the user and one of the treatments"),
    _packed("cpu", "cpu_us", "CPU of the engine for a request"),
    _packed("bytes", "bytes", "bytes of a request"),
)
