"""The figures of real clients, large requests and crowds."""

from collections.abc import Callable
from functools import partial

from outrigger_testenv.bench import compression, traffic
from outrigger_testenv.bench.clients import BENCH, CORE, GO, Client
from outrigger_testenv.bench.figure import (
    MEBIBYTES,
    RATIO,
    REQUESTS,
    Effort,
    Figure,
    Measurement,
    Target,
    at_least,
    at_most,
)
from outrigger_testenv.bench.setup import COLUMNAR, JSON, KEY_VALUE

# The forms, by the word for them in names of figures.
_FORMS = {"table": COLUMNAR, "kv": KEY_VALUE}
# The time for starting a generator, which sends each request once; seconds a run.
_START = 1.0
# The control plane's bound on memory, 512 MiB, and what is beside it.
_RESIDENT = 600


def _pairs(effort: Effort) -> float:
    return 2 * effort.repeats * (_START + effort.warmup + effort.measured)


def _frames(name: str, form: str) -> Figure:
    return Figure(
        f"path-{name}-frames",
        f"throughput with frames of 16 KiB over that with one frame, {form}, outrigger bench",
        RATIO,
        partial(traffic.frames, form),
        None,
        _pairs,
    )


def _cpu(client: str, generator: Client, name: str, form: str, most: float) -> Figure:
    return Figure(
        f"client-{client}-{name}-cpu",
        f"CPU of the control plane with {generator.name} over outrigger bench in one frame, {form}",
        RATIO,
        partial(traffic.cpu_over_one_frame, generator, form),
        at_most(most),
        _pairs,
    )


def _parts(
    name: str, connections: int, deadline: float, more: str = ""
) -> Callable[[str, str, str, str, Target], Figure]:
    """A maker of the figures of one crowd, whose titles go on with `more`. It takes the end of a
    title, the method that measures the figure, its description, its unit and its target.
    """
    form = _FORMS[name]
    about = f"4,096 in flight over {connections} connections, {form}, deadlines of {deadline:g} s"
    scene = traffic.Scene(form, connections, deadline)
    title = f"crowd-{name}-{connections}{more}"

    def part(end: str, method: str, what: str, unit: str, target: Target) -> Figure:
        measure = partial(traffic.crowd, method, scene)
        return Figure(f"{title}{end}", f"{about}: {what}", unit, measure, target, _third)

    return part


def _crowd(name: str, connections: int) -> tuple[Figure, ...]:
    """A crowd whose requests can wait."""
    part = _parts(name, connections, traffic.PATIENT)
    return (
        part("", "goodput", "answers a second over those with 512 in flight", RATIO, at_least(0.9)),
        part("-failed", "failed", "failed requests", REQUESTS, at_most(0)),
        part("-memory", "resident", "resident memory", MEBIBYTES, at_most(_RESIDENT)),
    )


def _hurried(name: str, connections: int) -> tuple[Figure, ...]:
    """A crowd most of whose requests must be refused."""
    part = _parts(name, connections, traffic.HURRIED, "-hurried")
    return (
        part("", "goodput", "answers a second over those with 512 in flight", RATIO, at_least(0.8)),
        part("-unexplained", "unexplained", "failed without a reason", REQUESTS, at_most(0)),
        part(
            "-refusal-cpu",
            "refusal_cpu",
            "CPU of the control plane for a refusal over that for an answer",
            RATIO,
            at_most(0.2),
        ),
    )


def _third(effort: Effort) -> float:
    # One run gives three figures.
    return _pairs(traffic.crowd_effort(effort)) / 3


def _open(name: str, form: str) -> Figure:
    return Figure(
        f"open-2x-{name}",
        "answers a second of an open loop at twice the capacity, deadlines of 1 s, over that"
        f" capacity, {form}, grpc-go",
        RATIO,
        partial(traffic.open_loop, form),
        at_least(0.85),
        _pairs,
    )


def _idlers(end: str, part: str, what: str, unit: str, most: float) -> Figure:
    return Figure(
        f"connections-8000-{end}",
        f"8,000 connections, a request on each every 10 s, columnar: {what}",
        unit,
        partial(traffic.idlers, part),
        at_most(most),
        lambda effort: traffic.idlers_seconds(effort) / 2,
    )


def _compressed(name: str, form: str, encoding: str) -> tuple[Figure, Figure]:
    """The figures of requests in this encoding. They have no targets: the caller's network
    decides if they pay.
    """
    about = f"with {encoding} over that without, {form}, outrigger bench"

    def part(end: str, what: str, measure: Callable[..., Measurement]) -> Figure:
        title = f"compress-{name}-{encoding}-{end}"
        return Figure(title, f"{what} {about}", RATIO, partial(measure, form, encoding), None, half)

    def half(effort: Effort) -> float:
        # One run gives both figures.
        return _pairs(compression.effort_of(effort)) / 2

    return (
        part("bytes", "size of a request", compression.size),
        part("cpu", "CPU of the control plane for a request", compression.cpu),
    )


def _lost(client: str, generator: Client, is_throttled: bool) -> Figure:
    how = ", with the control plane stopped for 0.4 s of each second" if is_throttled else ""
    return Figure(
        f"busy-{client}{'-throttled' if is_throttled else ''}-lost",
        f"failed requests of {generator.name}, 100 in flight on one connection, 2 KB{how}",
        REQUESTS,
        partial(traffic.lost, generator, is_throttled),
        at_most(0),
        lambda effort: traffic.lost_effort(effort).measured,
    )


CLIENT_FIGURES = (
    *(_frames(name, form) for name, form in _FORMS.items()),
    _cpu("go", GO, "table", COLUMNAR, 1.25),
    _cpu("go", GO, "kv", KEY_VALUE, 1.4),
    _cpu("core", CORE, "table", COLUMNAR, 1.5),
    _cpu("core", CORE, "kv", KEY_VALUE, 1.5),
    Figure(
        "kv-5000-cpu",
        "CPU of the control plane for 5,000 treatments over that for 1,000, key-value, outrigger"
        " bench in frames of 16 KiB",
        RATIO,
        partial(traffic.growth, 1000, 5000),
        at_most(6),
        _pairs,
    ),
    *(
        figure
        for kind in (_crowd, _hurried)
        for name in _FORMS
        for connections in (64, 512)
        for figure in kind(name, connections)
    ),
    *(_open(name, form) for name, form in _FORMS.items()),
    *(
        figure
        for name, form in (*_FORMS.items(), ("json", JSON))
        for encoding in ("gzip", "zstd")
        for figure in _compressed(name, form, encoding)
    ),
    _idlers("failed", "failed", "failed requests", REQUESTS, 0),
    _idlers("memory", "resident", "resident memory", MEBIBYTES, _RESIDENT),
)


def _cpu_ratio(name: str, generator: Client, form: str, most: float) -> Figure:
    about = f"CPU of the control plane with {generator.name} over the commit before's, {form}"
    measure = partial(traffic.cpu_over_before, generator, form)
    return Figure(name, about, RATIO, measure, at_most(most), _pairs)


def _ratio(name: str, form: str, least: float) -> Figure:
    return Figure(
        f"client-go-{name}-ratio",
        f"throughput with grpc-go over that through the commit before, {form}",
        RATIO,
        partial(traffic.throughput_over_before, GO, form),
        at_least(least),
        _pairs,
    )


# Minutes of load each, so they are measured only by name.
LOST_FIGURES = tuple(
    _lost(client, generator, is_throttled)
    for client, generator in (("go", GO), ("core", CORE))
    for is_throttled in (False, True)
)

# Measured where a commit to compare with is given.
CLIENT_COMPARISONS = (
    _ratio("table", COLUMNAR, 1.25),
    _ratio("kv", KEY_VALUE, 1.5),
    _cpu_ratio("client-go-table-cpu-ratio", GO, COLUMNAR, 1.05),
    _cpu_ratio("client-go-kv-cpu-ratio", GO, KEY_VALUE, 1.35),
    _cpu_ratio("json-cpu", BENCH, JSON, 0.33),
)
