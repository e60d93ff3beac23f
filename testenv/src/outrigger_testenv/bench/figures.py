"""All figures, in the order in which they are measured."""

from functools import partial

from outrigger_testenv.bench import allocations, engine, path, transcode
from outrigger_testenv.bench.figure import Effort, Figure, Target, at_least, at_most
from outrigger_testenv.bench.setup import COLUMNAR, KEY_VALUE

RATIO, RATE, MILLISECONDS, CORES, ALLOCATIONS = "x", "/s", "ms", "cores", "allocations"

# Starting a process, connecting, encoding requests; seconds a run.
_START = 0.7


def _runs(effort: Effort) -> float:
    return effort.repeats * (_START + effort.warmup + effort.measured)


def _pairs(effort: Effort) -> float:
    return 2 * _runs(effort)


def _search(effort: Effort) -> float:
    # About so many steps, and a rate found at the edge is not held at once.
    steps, confirmations = 12, 2
    return steps * effort.measured * 1.2 + confirmations * (effort.warmup + effort.held)


def _transcode(name: str, about: str, target: Target | None) -> Figure:
    measure = partial(transcode.ratio, name)
    return Figure(name, about, RATIO, measure, target, lambda _: 4)


def _allocations(name: str, about: str) -> Figure:
    # The test has the limit.
    return Figure(name, about, ALLOCATIONS, partial(allocations.counted, name), None, lambda _: 2)


FIGURES = (
    _transcode(
        "transcode-kv-speedup",
        "1,000 x 20 numbers, keys in one order: prost, hash maps and packing over the transcoder",
        at_least(25),
    ),
    _transcode(
        "transcode-kv-memcpy",
        "the same: the transcoder over one memcpy of the request",
        at_most(6),
    ),
    _transcode(
        "transcode-shuffled-speedup",
        "keys in random order in each treatment, over the transcoder",
        at_least(10),
    ),
    _transcode(
        "transcode-mixed-speedup",
        "12 numbers, 4 words of a vocabulary, 4 hashed texts, over the transcoder",
        at_least(8),
    ),
    _transcode(
        "transcode-table",
        "columnar, in the model's order: the transcoder over one memcpy of the request",
        at_most(3.5),
    ),
    _transcode("transcode-table-ids", "the same with 1,000 ids beside", None),
    Figure(
        "engine-direct",
        "throughput of the engine over gRPC, over TensorFlow called in process",
        RATIO,
        engine.direct,
        at_least(0.5),
        _pairs,
    ),
    Figure(
        "path-table-ratio",
        "throughput of control plane and engine over the engine alone, columnar",
        RATIO,
        partial(path.throughput, COLUMNAR),
        at_least(0.65),
        _pairs,
    ),
    Figure(
        "path-kv-ratio",
        "throughput of control plane and engine over the engine alone, key-value",
        RATIO,
        partial(path.throughput, KEY_VALUE),
        at_least(0.33),
        _pairs,
    ),
    Figure(
        "path-cpu-echo",
        "CPU of the control plane over that of a bare tonic proxy, a columnar request",
        RATIO,
        path.cpu_over_echo,
        at_most(1.5),
        _pairs,
    ),
    Figure(
        "path-added-p99",
        "99th percentile through the control plane minus the engine's, columnar, 800/s",
        MILLISECONDS,
        path.added_p99,
        at_most(1),
        _pairs,
    ),
    Figure(
        "path-cores-6000",
        "cores of control plane and engine for 6,000 columnar requests a second",
        CORES,
        path.cores,
        at_most(2),
        _runs,
    ),
    Figure(
        "path-rate-table",
        "the highest rate held with a 99th percentile below 100 ms, columnar",
        RATE,
        partial(path.highest_rate, COLUMNAR),
        at_least(4000),
        _search,
    ),
    Figure(
        "path-rate-kv",
        "the highest rate held with a 99th percentile below 100 ms, key-value",
        RATE,
        partial(path.highest_rate, KEY_VALUE),
        at_least(2200),
        _search,
    ),
    _allocations("path-allocations", "on the threads that serve, a columnar request"),
    _allocations("path-allocations-kv", "the same, a key-value request"),
)


def chosen(prefix: str) -> list[Figure]:
    """Those whose names begin so."""
    return [figure for figure in FIGURES if figure.name.startswith(prefix)]
