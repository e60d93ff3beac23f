"""The figures of tree models."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from outrigger_testenv.bench.figure import (
    RATIO,
    Effort,
    Figure,
    Target,
    at_least,
    at_most,
)
from outrigger_testenv.bench.trees import bits, double_kernels, kernels, peers, serving
from outrigger_testenv.bench.trees.models import SHAPES

# The time for loading all models into a library, seconds; XGBoost takes the most.
_LOADED = 3
# The time for starting a control plane or MLServer and loading a model, seconds.
_STARTED = 8
# The time of one measurement, seconds: a call more, and calls until the time is over.
_MEASURED = 0.06

# Workers for models of LightGBM: these kernels with vectors of each width, lleaves, and LightGBM.
_BESIDE_LIGHTGBM = len(kernels.WIDTHS) + 2

_COUNTED = "margins"


def is_fast_intel(cpuinfo: str) -> bool:
    """Whether the processor is Intel's and has AVX-512: for it the targets are higher."""
    return "GenuineIntel" in cpuinfo and "avx512f" in cpuinfo


def _target(intel: float, others: float) -> Target:
    """A lower bound that depends on the processor."""
    return at_least(intel if is_fast_intel(Path("/proc/cpuinfo").read_text()) else others)


def _compared(workers: int, counts: int, figures: int) -> Callable[[Effort], float]:
    """The time of one of several figures that one run gives."""

    def seconds(effort: Effort) -> float:
        cells = len(SHAPES) * counts
        return workers * (_LOADED + effort.repeats * cells * _MEASURED) / figures

    return seconds


def _xgboost(rows: int, intel: float, others: float) -> Figure:
    versions = " and ".join(kernels.VERSIONS)
    return Figure(
        f"trees-xgboost-{rows}",
        f"calls a second with {_rows(rows)} over those of XGBoost's in-place call from C, the"
        f" faster of {versions} for each model; one thread, geometric mean over models A to D",
        RATIO,
        partial(kernels.over_xgboost, rows),
        _target(intel, others),
        _compared(len(kernels.WIDTHS) + len(kernels.VERSIONS), 4, 4),
    )


def _peers(rows: int) -> Figure:
    return Figure(
        f"trees-peers-{rows}",
        f"calls a second with {_rows(rows)} over those of the best of {', '.join(peers.NAMES)} for"
        " each model that it can load; one thread, geometric mean over models A to D",
        RATIO,
        partial(kernels.over_peers, rows),
        _target(2, 1.2),
        _compared(1 + len(peers.NAMES), 2, 2),
    )


def _lightgbm(rows: int) -> Figure:
    return Figure(
        f"trees-lightgbm-{rows}",
        f"calls a second with {_rows(rows)} over those of LightGBM's C interface with models of"
        " LightGBM, in f64; one thread, geometric mean over models A to D",
        RATIO,
        partial(double_kernels.over_lightgbm, rows),
        at_least(10),
        _compared(_BESIDE_LIGHTGBM, 2, 4),
    )


def _lleaves(rows: int) -> Figure:
    return Figure(
        f"trees-lleaves-{rows}",
        f"calls a second with {_rows(rows)} over those of the faster of lleaves and LightGBM for"
        " each model of LightGBM; one thread, geometric mean over models A to D",
        RATIO,
        partial(double_kernels.over_lleaves, rows),
        _target(2, 1.2),
        _compared(_BESIDE_LIGHTGBM, 2, 4),
    )


def _margins(library: str, name: str) -> Figure:
    return Figure(
        f"trees-{library}-margins",
        f"largest relative difference of a margin from {name}'s, in f64, with all kernels; models"
        f" A to D of {name}; rows dense, with a tenth of the values missing, and with half of them",
        RATIO,
        partial(double_kernels.margins, library),
        at_most(1e-12),
        lambda _: 4 * _LOADED,
    )


def _catboost(rows: int) -> Figure:
    return Figure(
        f"trees-catboost-{rows}",
        f"calls a second with {_rows(rows)} over those of CatBoost's Python module with models of"
        " CatBoost, in f64; one thread, geometric mean over models A to D",
        RATIO,
        partial(double_kernels.over_catboost, rows),
        None,
        _compared(2, 2, 2),
    )


def _hessboost(rows: int, intel: float, others: float) -> Figure:
    return Figure(
        f"trees-hessboost-{rows}",
        f"calls a second with {_rows(rows)} over those of hessboost, compiled for this processor;"
        " one thread, geometric mean over models A to D",
        RATIO,
        partial(kernels.over_hessboost, rows),
        _target(intel, others),
        _compared(2, 4, 4),
    )


def _load(name: str, ending: str) -> Figure:
    return Figure(
        f"trees-load-{name}",
        f"time to load model D from {ending.removeprefix('.')} over that of XGBoost's own reader,"
        " the faster version; one thread",
        RATIO,
        partial(kernels.load, ending),
        at_most(0.5),
        lambda effort: _LOADED * effort.repeats,
    )


def _machine(rows: int, bound: float) -> Figure:
    return Figure(
        f"trees-fm-{rows}",
        f"calls a second of GBDT+FM (110 trees, k = 8, 30 ids a row) with {_rows(rows)} over those"
        " of the leaf prediction alone of XGBoost 1.5.0; one thread",
        RATIO,
        partial(kernels.machine_over_leaves, rows),
        at_least(bound),
        lambda effort: _LOADED + 2 * effort.repeats * _MEASURED,
    )


def _mlserver(rows: int, bound: float) -> Figure:
    return Figure(
        f"trees-mlserver-{rows}",
        f"answers a second with {_rows(rows)} over those of MLServer with the same model, both over"
        " gRPC's C core, 16 requests in flight",
        RATIO,
        partial(serving.over_mlserver, rows),
        at_least(bound),
        lambda effort: _STARTED + 2 * effort.repeats * (effort.warmup + effort.measured + 1),
    )


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count > 1)}"


TREE_FIGURES = (
    Figure(
        "trees-bits",
        "margins that differ in any bit from those of XGBoost, with all kernels, of models A to D"
        " and of models with several classes, dart, categories and parallel trees; rows dense, with"
        " a tenth of the values missing, and sparse (absent, zero, missing)",
        _COUNTED,
        bits.bits,
        at_most(0),
        lambda _: 14 * _LOADED,
    ),
    _xgboost(1, 12, 8),
    _xgboost(16, 6, 4),
    _xgboost(100, 6, 3),
    _xgboost(1000, 5, 2),
    _peers(1),
    _peers(1000),
    _margins("lightgbm", "LightGBM"),
    _lightgbm(1),
    _lightgbm(1000),
    _lleaves(1),
    _lleaves(1000),
    _margins("catboost", "CatBoost"),
    _catboost(1),
    _catboost(1000),
    _hessboost(1, 1.1, 1.0),
    _hessboost(16, 1.5, 1.2),
    _hessboost(100, 1.5, 1.2),
    _hessboost(1000, 1.5, 1.2),
    _load("json", ".json"),
    _load("ubjson", ".ubj"),
    _machine(1, 50),
    _machine(1000, 4),
    Figure(
        "trees-latency",
        "median latency of one caller on loopback with 1,000 treatments, model B, columnar, over"
        " the median time of its kernel, each on one processor; outrigger bench in frames of 16"
        " KiB",
        RATIO,
        serving.latency,
        at_most(1.4),
        lambda effort: _STARTED + effort.repeats * (effort.warmup + effort.measured + 0.3),
    ),
    _mlserver(1, 20),
    _mlserver(1000, 5),
    Figure(
        "trees-p99",
        "99th percentile of GBDT+FM over that of the leaf prediction alone of XGBoost 1.5.0 with"
        " OpenMP on all cores, each in the process of its 8 callers of 1 to 100 rows, at 70 % of"
        " the latter's capacity",
        RATIO,
        serving.p99,
        at_most(0.5),
        lambda effort: _LOADED + effort.measured + 2 * effort.repeats * effort.measured,
    ),
)
