"""The way of a request: through control plane and engine, beside what is less."""

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

# Requests a second for what they cost: far from what any side can take, so that
# none of them saves by working on several at once.
_MODERATE = 1000
# For the latency added: no queue of any side is part of it.
_LATENCY = 800
_HEADLINE = 6000
# Milliseconds that 99 of 100 answers keep to while a rate counts as held.
_P99 = 100


def throughput(form: str, setup: Setup, effort: Effort) -> Measurement:
    """Throughput through the control plane, over that of the engine called directly."""

    def share(through: Report, direct: Report) -> float:
        return through.throughput / direct.throughput

    return compare(setup.through(form), setup.direct(), CLOSED_LOOP, effort, share)


def cpu_over_echo(setup: Setup, effort: Effort) -> Measurement:
    """CPU of the control plane, over that of a proxy that only passes the bytes on."""

    def share(through: Report, proxied: Report) -> float:
        return through.cpu(CONTROL_PLANE) / proxied.cpu(PROXY)

    return compare(setup.through(COLUMNAR), setup.proxied(), rate(_MODERATE), effort, share)


def added_p99(setup: Setup, effort: Effort) -> Measurement:
    """Milliseconds that the control plane adds to the engine's 99th percentile."""

    def added(through: Report, direct: Report) -> float:
        return through.p99 - direct.p99

    return compare(setup.through(COLUMNAR), setup.direct(), rate(_LATENCY), effort, added)


def cores(setup: Setup, effort: Effort) -> Measurement:
    """Cores that control plane and engine would need for the headline's rate, by what a
    request costs them when they have as many as they can take."""
    side = setup.through(COLUMNAR)
    reports = [run(side, CLOSED_LOOP, effort) for _ in range(effort.repeats)]
    samples = [report.cpu(CONTROL_PLANE, ENGINE) * _HEADLINE for report in reports]
    runs = [report.raw() for report in reports]
    return Measurement(samples, {"requests_per_second": _HEADLINE}, runs)


def step_seconds(effort: Effort) -> float:
    """How long a rate is tried: what is found is held for longer."""
    return min(3, effort.measured)


def highest_rate(form: str, setup: Setup, effort: Effort) -> Measurement:
    """Requests a second that are found by trying, and then held."""
    search = find_rate(_P99, step_seconds(effort))
    report = run(setup.through(form), search, effort, effort.held)
    return Measurement([report.offered_rate], runs=[report.raw()])
