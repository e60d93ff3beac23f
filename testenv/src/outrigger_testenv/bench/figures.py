"""All figures, in the order in which they are measured."""

from collections.abc import Callable, Sequence
from functools import partial

from outrigger_testenv.bench import (
    allocations,
    batching,
    before,
    engine,
    many,
    outage,
    page,
    path,
    process,
    system_calls,
    transcode,
    validation,
)
from outrigger_testenv.bench.canary_figures import CANARY_FIGURES
from outrigger_testenv.bench.client_figures import CLIENT_COMPARISONS, CLIENT_FIGURES
from outrigger_testenv.bench.figure import (
    ALLOCATIONS,
    CORES,
    KILOBYTES,
    MEGABYTES,
    MILLISECONDS,
    PERCENT,
    RATE,
    RATIO,
    SECONDS,
    Effort,
    Figure,
    Measurement,
    Target,
    at_least,
    at_most,
)
from outrigger_testenv.bench.layout_figures import LAYOUT_FIGURES
from outrigger_testenv.bench.oip.figures import OIP_FIGURES
from outrigger_testenv.bench.programs import ALLOCATION_COUNTER, ECHO_PROXY, SESSION, TRANSCODE
from outrigger_testenv.bench.setup import COLUMNAR, KEY_VALUE, Setup
from outrigger_testenv.bench.trees.figures import TREE_FIGURES

# The time for starting a process, connecting and encoding requests; seconds a run.
_START = 0.2
# The time for building and loading a few models, seconds.
_WARM = 8
# The time until the control plane knows that an engine hangs, seconds.
_NOTICED = 3


def _runs(effort: Effort) -> float:
    return effort.repeats * (_START + effort.warmup + effort.measured)


def _pairs(effort: Effort) -> float:
    return 2 * _runs(effort)


def _search(effort: Effort) -> float:
    # The approximate number of steps. The rate found is not always held at the first attempt.
    steps = 20
    return steps * path.step_seconds(effort) * 1.2 + effort.warmup + effort.held


def _visits(effort: Effort) -> float:
    return 3 + effort.repeats


def _validated(effort: Effort) -> float:
    # The expected rate, rows a second.
    rows = 200_000
    return _WARM + effort.repeats * validation.many(effort) * 8 / rows + _runs(effort)


def _outage(name: str, about: str, measure: Callable[[Setup, Effort], Measurement]) -> Figure:
    return Figure(
        f"outage-{name}-p99",
        f"99th percentile while another engine {about}, over that while both answer, 800/s",
        RATIO,
        measure,
        at_most(1.5),
        # Each turn waits twice until the control plane has noticed a change.
        lambda effort: _WARM + _pairs(effort) + effort.repeats * 2 * _NOTICED,
    )


def _transcode(name: str, about: str, target: Target | None) -> Figure:
    measure = partial(transcode.ratio, name)
    return Figure(name, about, RATIO, measure, target, lambda _: 3, (TRANSCODE,))


def _allocations(name: str, about: str) -> Figure:
    # No target here: the test has the limit.
    measure = partial(allocations.counted, name)
    return Figure(name, about, ALLOCATIONS, measure, None, lambda _: 7, (ALLOCATION_COUNTER,))


# Each within 3 % of the earlier commit.
_NOT_LESS = at_least(0.97)


def _compared(effort: Effort) -> float:
    return before.pairs(effort) / effort.repeats * _pairs(effort)


def _before_form(name: str, form: str, about: str) -> tuple[Figure, ...]:
    return (
        Figure(
            f"before-{name}-throughput",
            f"throughput through the control plane over that of the commit before, {about}",
            RATIO,
            partial(before.throughput, form),
            _NOT_LESS,
            _compared,
        ),
        Figure(
            f"before-{name}-instructions",
            f"user instructions of the control plane over the commit before's, {about}",
            RATIO,
            partial(before.instructions, form),
            at_most(1.03),
            lambda _: 120,
        ),
    )


def _before_transcode(name: str) -> Figure:
    return Figure(
        f"before-{name}",
        f"the transcoder's time in {name}: the commit before's over this one's",
        RATIO,
        partial(before.transcode, name),
        _NOT_LESS,
        lambda effort: before.pairs(effort) * 6,
        (TRANSCODE,),
    )


# Measured instead of the others where a commit to compare with is given.
COMPARISONS = (
    *_before_form("table", COLUMNAR, "columnar"),
    *_before_form("kv", KEY_VALUE, "key-value"),
    Figure(
        "before-added-p99",
        "99th percentile minus that of the commit before, columnar, 800/s",
        MILLISECONDS,
        before.p99,
        at_most(0.1),
        _compared,
    ),
    *(
        _before_transcode(f"transcode-{name}")
        for name in (
            "kv-speedup",
            "shuffled-speedup",
            "mixed-speedup",
            "table",
            "table-ids",
        )
    ),
    Figure(
        "before-idle-memory",
        "resident memory with four models and no requests, over the commit before's",
        RATIO,
        before.idle_memory,
        at_most(1.05),
        lambda effort: _WARM + 2 * process.idle_repeats(effort) * process.SETTLED,
    ),
    Figure(
        "before-start-to-ready",
        "from the start to /readyz, minus that of the commit before",
        MILLISECONDS,
        before.start_to_ready,
        at_most(20),
        lambda effort: _WARM + 2 * before.pairs(effort) * _START,
    ),
    *CLIENT_COMPARISONS,
)

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
        (SESSION,),
    ),
    Figure(
        "batching-gain",
        "throughput of the engine with batching over that without: four dense layers of 2,048, 64"
        " requests of one treatment in flight",
        RATIO,
        batching.gain,
        at_least(4),
        lambda effort: _WARM + _pairs(batching.turns(effort)),
    ),
    *LAYOUT_FIGURES,
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
        (ECHO_PROXY,),
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
    Figure(
        "path-system-calls",
        "system calls of the control plane, a columnar request at 400/s",
        "calls",
        system_calls.a_request,
        at_most(7.2),
        _runs,
    ),
    *CLIENT_FIGURES,
    Figure(
        "validate-rows",
        "rows a second of `outrigger validate` over those of the engine called directly with packed"
        " tensors, 64 users a call",
        RATIO,
        validation.rows,
        at_least(0.5),
        _validated,
    ),
    Figure(
        "validate-rows-pandas",
        "the same of pandas and TensorFlow in one process",
        RATIO,
        validation.pandas_rows,
        None,
        _validated,
    ),
    Figure(
        "validate-p99",
        "99th percentile at 30 % of the capacity while the pod validates a file, over that without",
        RATIO,
        validation.p99,
        at_most(1.2),
        lambda effort: _WARM + _runs(effort) / effort.repeats + _pairs(effort),
    ),
    _outage("hanging", "hangs", outage.hanging),
    _outage("down", "is down", outage.down),
    _allocations("path-allocations", "on the threads that serve, a columnar request"),
    _allocations("path-allocations-kv", "the same, a key-value request"),
    Figure(
        "idle-memory",
        "resident memory of the control plane with four models loaded and no requests",
        MEGABYTES,
        process.idle_memory,
        at_most(40),
        lambda effort: _WARM + process.idle_repeats(effort) * process.SETTLED,
    ),
    Figure(
        "start-to-ready",
        "from the start of the control plane to /readyz, its store warm, beside a running engine",
        SECONDS,
        process.start_to_ready,
        at_most(1),
        lambda effort: _WARM + effort.repeats * _START,
    ),
    Figure(
        "start-to-ready-both",
        "the same, beside an engine that has just been started too",
        SECONDS,
        process.start_to_ready_both,
        None,
        lambda effort: _WARM + effort.repeats * 4,
    ),
    Figure(
        "many-200-load",
        "until 200 tiny models are loaded, 16 asked for at a time",
        SECONDS,
        partial(many.load_seconds, 200),
        at_most(25),
        partial(many.seconds, 200, 3),
    ),
    Figure(
        "many-200-load-cpu",
        "CPU of the control plane for that",
        SECONDS,
        partial(many.load_cpu, 200),
        at_most(3),
        partial(many.seconds, 200, 3),
    ),
    Figure(
        "many-200-idle",
        "CPU of the control plane with these, tags looked up every 10 s, no requests",
        PERCENT,
        partial(many.idle_cpu, 200),
        at_most(2),
        partial(many.seconds, 200, 3),
    ),
    Figure(
        "many-1000-idle",
        "the same with 1,000 tiny models",
        PERCENT,
        partial(many.idle_cpu, 1000),
        at_most(10),
        partial(many.seconds, 1000, 1),
    ),
    *CANARY_FIGURES,
    *OIP_FIGURES,
    *TREE_FIGURES,
    Figure(
        "ui-first-paint",
        "the page in headless Chromium, nothing cached: until the first text is to be seen",
        MILLISECONDS,
        page.first_paint,
        at_most(300),
        _visits,
    ),
    Figure(
        "ui-bytes",
        "the same: what comes over the network until the models are listed",
        KILOBYTES,
        page.transferred,
        at_most(150),
        _visits,
    ),
)


def chosen(prefix: str, figures: Sequence[Figure] = FIGURES) -> list[Figure]:
    """The figures whose names have this prefix."""
    return [figure for figure in figures if figure.name.startswith(prefix)]
