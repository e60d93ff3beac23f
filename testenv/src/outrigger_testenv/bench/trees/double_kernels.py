"""The kernels for models of LightGBM and CatBoost beside these libraries and lleaves."""

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.bench.trees import peers
from outrigger_testenv.bench.trees.doubles import models
from outrigger_testenv.bench.trees.kernels import (
    KINDS,
    ROWS,
    WIDTHS,
    Times,
    microseconds,
    ours,
    ratios,
    times_of,
)
from outrigger_testenv.bench.trees.models import SHAPES
from outrigger_testenv.bench.trees.workers import Worker, program, started

COUNTS = (1, 1000)
"""Rows of the calls that are timed."""


def margins(library: str, _: Setup, effort: Effort) -> Measurement:
    """The largest relative difference of a margin from that of LightGBM or CatBoost, for all
    models, kinds and numbers of rows, and widths of vectors.
    """
    del effort
    own, other = _own(library), OTHERS[library]()
    worst, compared = {each.name: 0.0 for each in own}, 0
    with started(*own, other):
        for question in product(["margins"], [each.name for each in SHAPES], ROWS, KINDS):
            expected = other.ask(*question)
            for worker in own:
                found = difference(worker.ask(*question), expected)
                worst[worker.name] = max(worst[worker.name], found)
                compared += len(expected)
    return Measurement([max(worst.values())], {"compared": compared, "worst": worst})


def difference(own: Sequence[int], others: Sequence[int]) -> float:
    """The largest relative difference of f64 that are given as their bits; infinite if their
    numbers differ, or one is no number.
    """
    if len(own) != len(others):
        return np.inf
    one, other = (np.array(bits, np.uint64).view(np.float64) for bits in (own, others))
    with np.errstate(divide="ignore", invalid="ignore"):
        differences = np.where(one == other, 0, np.abs(one - other) / np.abs(other))
    return float(np.where(np.isnan(differences), np.inf, differences).max(initial=0))


def over_lightgbm(rows: int, _: Setup, effort: Effort) -> Measurement:
    """Calls a second over those of LightGBM's C interface; the geometric mean over the models. The
    narrower kernels are in the conditions.
    """
    times = _beside_lightgbm(effort)
    narrower = {
        f"vectors of {width} bytes": ratios(times, rows, at, -1)
        for at, width in enumerate(WIDTHS)
        if at > 0
    }
    conditions = {"narrower": narrower, "microseconds": _shown(times, rows)}
    return Measurement(ratios(times, rows, 0, -1), conditions)


def over_lleaves(rows: int, _: Setup, effort: Effort) -> Measurement:
    """Calls a second over those of the faster of lleaves and LightGBM for each model of LightGBM;
    lleaves does not compile the largest one.
    """
    times = _beside_lightgbm(effort)
    return Measurement(ratios(times, rows, 0, -2), {"microseconds": _shown(times, rows)})


def over_catboost(rows: int, _: Setup, effort: Effort) -> Measurement:
    """Calls a second over those of CatBoost's Python module; the geometric mean over the models."""
    times = _beside_catboost(effort)
    names = [f"ours, {WIDTHS[0]}", "catboost"]
    return Measurement(
        ratios(times, rows, 0, -1), {"microseconds": microseconds(times, rows, names)}
    )


def _shown(times: Times, rows: int) -> dict[str, dict[str, float | None]]:
    names = [*(f"ours, {width}" for width in WIDTHS), "lleaves", "LightGBM"]
    return microseconds(times, rows, names)


def _own(library: str) -> list[Worker]:
    return [ours(width, models(library)) for width in WIDTHS]


def _lightgbm() -> Worker:
    return Worker("LightGBM", [program(), "scores", peers.lightgbm(), *models("lightgbm")])


def _catboost() -> Worker:
    return peers.double_worker("catboost", models("catboost"))


OTHERS = {"lightgbm": _lightgbm, "catboost": _catboost}
"""Workers with the libraries, by the names of `models`."""


@cache
def _beside_lightgbm(effort: Effort) -> Times:
    lleaves = peers.double_worker("lleaves", models("lightgbm"))
    return times_of([*_own("lightgbm"), lleaves, _lightgbm()], COUNTS, effort)


@cache
def _beside_catboost(effort: Effort) -> Times:
    # Oblivious trees have one kernel, for vectors of any width.
    return times_of([ours(WIDTHS[0], models("catboost")), _catboost()], COUNTS, effort)
