"""The request path through control plane and engine, compared with the engine alone and with a bare
proxy.
"""

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.generator import (
    CLOSED_LOOP,
    CONTROL_PLANE,
    ENGINE,
    PROXY,
    Report,
    compare,
    find_rate,
    rate,
    run,
)
from outrigger_testenv.bench.setup import COLUMNAR, Setup

# The rate for measuring CPU per request: far below every side's capacity, so that none saves CPU by
# batching.
_MODERATE = 1000
# The rate for measuring added latency: low enough that no side has a queue.
LATENCY = 800
_HEADLINE = 6000
# The limit in milliseconds for the 99th percentile while a rate counts as held.
_P99 = 100


def throughput(form: str, setup: Setup, effort: Effort) -> Measurement:
    """Throughput through the control plane, divided by that of the engine called directly."""

    def share(through: Report, direct: Report) -> float:
        return through.throughput / direct.throughput

    return compare(setup.through(form), setup.direct(), CLOSED_LOOP, effort, share)


def cpu_over_echo(setup: Setup, effort: Effort) -> Measurement:
    """CPU of the control plane, divided by that of a proxy that only passes bytes on."""

    def share(through: Report, proxied: Report) -> float:
        return through.cpu(CONTROL_PLANE) / proxied.cpu(PROXY)

    return compare(setup.through(COLUMNAR), setup.proxied(), rate(_MODERATE), effort, share)


def added_p99(setup: Setup, effort: Effort) -> Measurement:
    """Milliseconds that the control plane adds to the engine's 99th percentile."""

    def added(through: Report, direct: Report) -> float:
        return through.p99 - direct.p99

    return compare(setup.through(COLUMNAR), setup.direct(), rate(LATENCY), effort, added)


def cores(setup: Setup, effort: Effort) -> Measurement:
    """Cores that control plane and engine would need for the headline rate, computed from their CPU
    per request under full load.
    """
    side = setup.through(COLUMNAR)
    reports = [run(side, CLOSED_LOOP, effort) for _ in range(effort.repeats)]
    samples = [report.cpu(CONTROL_PLANE, ENGINE) * _HEADLINE for report in reports]
    runs = [report.raw() for report in reports]
    return Measurement(samples, {"requests_per_second": _HEADLINE}, runs)


def step_seconds(effort: Effort) -> float:
    """The duration of one step of the search; the rate found is held for longer."""
    return min(3, effort.measured)


def highest_rate(form: str, setup: Setup, effort: Effort) -> Measurement:
    """The highest rate per second that the search finds and then holds."""
    search = find_rate(_P99, step_seconds(effort))
    report = run(setup.through(form), search, effort, effort.held)
    return Measurement([report.offered_rate], runs=[report.raw()])
