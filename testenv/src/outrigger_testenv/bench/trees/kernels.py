"""The kernels of tree models beside XGBoost's in-place prediction, hessboost, and others."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.bench.trees import cache as cached
from outrigger_testenv.bench.trees import peers
from outrigger_testenv.bench.trees.machine import COLUMNS, TREES, machine
from outrigger_testenv.bench.trees.models import SHAPES, models
from outrigger_testenv.bench.trees.workers import (
    OURS,
    Worker,
    hessboost_program,
    program,
    seconds_by_turns,
    started,
)

ROWS = (1, 16, 100, 1000)
"""Rows of a call."""

WIDTHS = (64, 32, 16)
"""Bytes of the widest vectors that the kernels may use: AVX-512, AVX2 and portable ones. The first
is the default.
"""

KINDS = ("dense", "missing", "sparse")
"""Rows without missing values, with a tenth of them missing, and with half of the entries absent
and zeros and missing values among the others.
"""

VERSIONS = (cached.BEFORE_LAYOUT, cached.NEWEST)
"""The versions of XGBoost that are peers."""

# The seconds a call of each worker, for each turn, by model and number of rows.
Times = Mapping[tuple[str, int], Sequence[tuple[float | None, ...]]]


def over_xgboost(rows: int, _: Setup, effort: Effort) -> Measurement:
    """Calls a second over those of XGBoost's in-place call, the faster version for each model; the
    geometric mean over the models. The narrower kernels are in the conditions.
    """
    times = _beside_xgboost(effort)
    (_, *narrower), first = WIDTHS, len(WIDTHS)
    means = {
        f"vectors of {width} bytes": ratios(times, rows, at, first)
        for at, width in enumerate(narrower, 1)
    }
    conditions = {"narrower": means, "microseconds": microseconds(times, rows, _names())}
    return Measurement(ratios(times, rows, 0, first), conditions)


def over_hessboost(rows: int, _: Setup, effort: Effort) -> Measurement:
    """Calls a second over those of hessboost; the geometric mean over the models."""
    times = _beside_hessboost(effort)
    conditions = {"microseconds": microseconds(times, rows, [OURS, "hessboost"])}
    return Measurement(ratios(times, rows, 0, 1), conditions)


def over_peers(rows: int, _: Setup, effort: Effort) -> Measurement:
    """Calls a second over those of the best of the other libraries that can load a model; the
    geometric mean over the models.
    """
    times = _beside_peers(effort)
    conditions = {"microseconds": microseconds(times, rows, [OURS, *peers.NAMES])}
    return Measurement(ratios(times, rows, 0, 1), conditions)


def load(ending: str, _: Setup, effort: Effort) -> Measurement:
    """Seconds to load the largest model over those of XGBoost's own reader, the faster version."""
    file = models()[-1].with_suffix(ending)
    workers = [Worker(OURS, [program(), "load", OURS])]
    workers += [Worker(each, [program(), "load", cached.xgboost(each)]) for each in VERSIONS]
    with started(*workers):
        turns = seconds_by_turns(workers, effort.repeats, file)
    samples = [own / min(others) for own, *others in turns]
    return Measurement(samples, {"file_bytes": file.stat().st_size}, [{"seconds": turns}])


def machine_over_leaves(rows: int, _: Setup, effort: Effort) -> Measurement:
    """Calls a second of GBDT+FM over those of the leaf prediction alone of XGBoost 1.5.0, which is
    the part that XGBoost Serving leaves to it.
    """
    directory = machine()
    names = {OURS: OURS, f"XGBoost {cached.OLDEST}": cached.xgboost(cached.OLDEST)}
    workers = [Worker(name, [program(), "fm", each, directory]) for name, each in names.items()]
    with started(*workers):
        turns = seconds_by_turns(workers, effort.repeats, rows)
    samples = [leaves / whole for whole, leaves in turns]
    return Measurement(samples, {"columns": COLUMNS, "trees": TREES}, [{"seconds": turns}])


def ratios(times: Times, rows: int, at: int, first: int) -> list[float]:
    """For each turn, the geometric mean of the models' ratios: the time of the fastest of the
    workers from `first` on, divided by that of the worker `at`.
    """
    cells = [turns for (_, count), turns in times.items() if count == rows]
    return [
        math.exp(
            math.fsum(math.log(fastest(turn[first:]) / turn[at]) for turn in turns) / len(turns)
        )
        for turns in zip(*cells, strict=True)
    ]


def fastest(seconds: Sequence[float | None]) -> float:
    """The shortest of the times; a library that cannot load a model has none."""
    return min(each for each in seconds if each is not None)


def microseconds(times: Times, rows: int, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each model, the median time of a call by worker, in microseconds."""
    return {
        model: {
            name: None if None in values else sorted(values)[len(values) // 2] * 1e6
            for name, values in zip(names, zip(*turns, strict=True), strict=True)
        }
        for (model, count), turns in times.items()
        if count == rows
    }


def ours(width: int, files: Sequence[Path] = ()) -> Worker:
    """These kernels with vectors of at most this width, and XGBoost's models if none are given."""
    variables = {"OUTRIGGER_VECTORS": str(width)}
    command = [program(), "scores", OURS, *(files or models())]
    return Worker(f"{OURS}, {width}", command, variables)


def xgboost(version: str, files: Sequence[Path] = ()) -> Worker:
    """A version of XGBoost with these models, or those that are timed."""
    command = [program(), "scores", cached.xgboost(version), *(files or models())]
    return Worker(f"XGBoost {version}", command)


def _names() -> list[str]:
    return [f"{OURS}, {width}" for width in WIDTHS] + [f"XGBoost {each}" for each in VERSIONS]


# One run gives the figures of all numbers of rows.


@cache
def _beside_xgboost(effort: Effort) -> Times:
    workers = [ours(width) for width in WIDTHS] + [xgboost(each) for each in VERSIONS]
    return times_of(workers, ROWS, effort)


@cache
def _beside_hessboost(effort: Effort) -> Times:
    other = Worker("hessboost", [hessboost_program(), "scores", "hessboost", *models()])
    return times_of([ours(WIDTHS[0]), other], ROWS, effort)


@cache
def _beside_peers(effort: Effort) -> Times:
    return times_of([ours(WIDTHS[0]), *peers.workers(models())], (1, 1000), effort)


def times_of(workers: Sequence[Worker], counts: Sequence[int], effort: Effort) -> Times:
    """The times of all workers for each model and number of rows, by turns."""
    with started(*workers):
        return {
            (shape.name, rows): seconds_by_turns(workers, effort.repeats, "time", shape.name, rows)
            for shape in SHAPES
            for rows in counts
        }
