"""The bytes that compressed requests save, and their cost in CPU of the control plane."""

from dataclasses import replace
from functools import cache

from outrigger_testenv.bench.clients import BENCH, Bench, Call, run, served
from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.generator import CONTROL_PLANE, Report
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.bench.spread import in_turns

# Seconds: the time for decompression must not become a failed request.
_DEADLINE = 10.0


def cpu(form: str, encoding: str, setup: Setup, effort: Effort) -> Measurement:
    """CPU of the control plane for a compressed request, divided by that for one as it is."""
    turns = _turns(form, encoding, setup, effort)
    samples = [small.cpu(CONTROL_PLANE) / plain.cpu(CONTROL_PLANE) for small, plain in turns]
    return _measurement(samples, turns)


def size(form: str, encoding: str, setup: Setup, effort: Effort) -> Measurement:
    """Bytes of a compressed request, divided by those of one as it is."""
    turns = _turns(form, encoding, setup, effort)
    return _measurement([bytes_of(small) / bytes_of(plain) for small, plain in turns], turns)


def effort_of(effort: Effort) -> Effort:
    """Sizes do not vary, and CPU over CPU varies less by turn than throughput."""
    return replace(effort, repeats=min(3, effort.repeats))


def bytes_of(report: Report) -> float:
    """The mean size of a request's body."""
    return report.json["request_bytes"]


# One run gives both figures.
@cache
def _turns(
    form: str, encoding: str, setup: Setup, effort: Effort
) -> tuple[tuple[Report, Report], ...]:
    target, call = served(setup, setup.stack), Call(form, timeout=_DEADLINE)
    effort = effort_of(effort)
    turns = in_turns(
        effort.repeats,
        lambda: run(Bench(compress=encoding), target, call, effort),
        lambda: run(BENCH, target, call, effort),
    )
    return tuple(turns)


def _measurement(samples: list[float], turns: tuple[tuple[Report, Report], ...]) -> Measurement:
    return Measurement(samples, runs=[report.raw() for turn in turns for report in turn])
