"""The figures of canaries: simulated, on the path of a request, and on real processes."""

from functools import partial

from outrigger_testenv.bench import canary, overload
from outrigger_testenv.bench.figure import (
    FULL,
    MICROSECONDS,
    NANOSECONDS,
    PERCENT,
    RATIO,
    REGRESSIONS,
    REQUESTS,
    SECONDS,
    Effort,
    Figure,
    Target,
    at_least,
    at_most,
)
from outrigger_testenv.bench.programs import CANARY, CANARY_PATH


def _simulated(name: str, about: str, unit: str, target: Target) -> Figure:
    # Measuring the first of these figures runs the benchmark for all.
    measure = partial(canary.simulated, name)
    return Figure(name, about, unit, measure, target, _share, (CANARY,))


def _share(effort: Effort) -> float:
    """A figure's share of the benchmark's time, in seconds on two cores."""
    whole = 240 if effort == FULL else 40
    return whole / _COUNT


def _worse(name: str, about: str, most: float) -> tuple[Figure, ...]:
    """Figures of a canary with a defect: the share found, the requests needed, and the harm until
    then.
    """
    name = f"canary-{name}"
    return (
        _simulated(f"{name}-rolled-back", about, PERCENT, at_least(99)),
        _simulated(f"{name}-median", f"{about}: its requests until then", REQUESTS, at_most(most)),
        _simulated(
            f"{name}-harm-ratio",
            f"{about}: its bad answers until then over the best of the usual judges",
            RATIO,
            at_most(1.3),
        ),
    )


_SIMULATED = (
    _simulated(
        "canary-alike-rolled-back",
        "canaries like live that are rolled back, looked at after every request",
        PERCENT,
        at_most(1),
    ),
    _simulated(
        "canary-alike-promoted",
        "canaries like live that are promoted within 20,000 requests",
        PERCENT,
        at_least(95),
    ),
    _simulated(
        "canary-users-first-request-rolled-back",
        "the same for users who come back, the first request of each counted",
        PERCENT,
        at_most(1),
    ),
    _simulated(
        "canary-drift-promoted",
        "canaries like live that are promoted within 20,000 requests while the latency of both"
        " changes, in the worst of four ways",
        PERCENT,
        at_least(95),
    ),
    _simulated(
        "canary-drift-rolled-back",
        "canaries like live that are rolled back while the latency of both changes",
        PERCENT,
        at_most(1),
    ),
    _simulated(
        "canary-drift-latency-rolled-back",
        "1.5 times the latency, while the latency of both changes",
        PERCENT,
        at_least(99),
    ),
    _simulated(
        "canary-overload-failed",
        "callers that fail while a canary costs much of a simulated engine that both arms share, in"
        " the worst of four scenarios",
        PERCENT,
        at_most(0.1),
    ),
    _simulated(
        "canary-overload-slow",
        "the same: seconds in which live's p99 is more than twice that before the split",
        SECONDS,
        at_most(5),
    ),
    _simulated(
        "canary-overload-rolled-back",
        "the same: canaries that are rolled back",
        PERCENT,
        at_least(100),
    ),
    *_worse("errors", "3 % errors against 1 %", 1500),
    *_worse("latency", "1.5 times the latency", 1500),
    *_worse("scores-shifted", "scores moved by a quarter of a standard deviation", 1000),
    *_worse("scores-constant", "constant scores", 200),
    *_worse("nan", "NaN in 0.5 % of the answers", 1500),
    _simulated(
        "canary-harm-least",
        "of these five, those with less harm than under any of the usual judges",
        REGRESSIONS,
        at_least(4),
    ),
    _simulated(
        "canary-request", "what a request pays for being compared", NANOSECONDS, at_most(2000)
    ),
)
_COUNT = len(_SIMULATED)

_PATH = Figure(
    "canary-path-us",
    "CPU of the server that a request takes more while a canary is on trial",
    MICROSECONDS,
    canary.path,
    at_most(2),
    lambda _: 50,
    (CANARY_PATH,),
)

_OVERLOAD = (
    Figure(
        "overload-failed",
        "callers that fail while a canary costs 0.05 or 0.2 s of a core, 10 % of 400 or 30 % of 300"
        " requests a second, in the worst of these",
        PERCENT,
        overload.failed,
        at_most(0.1),
        lambda _: overload.SECONDS / 2,
    ),
    Figure(
        "overload-slow",
        "the same: seconds in which live's p99 is more than twice that before the split",
        SECONDS,
        overload.slow,
        at_most(5),
        # One run of the scenarios gives both figures.
        lambda _: overload.SECONDS / 2,
    ),
)

CANARY_FIGURES = (*_SIMULATED, _PATH, *_OVERLOAD)
