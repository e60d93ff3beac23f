"""A canary that costs much of the engine: what callers notice until it is rolled back."""

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from outrigger_testenv.bench.figure import Effort, Failed, Measurement
from outrigger_testenv.bench.setup import Setup, new_stack
from outrigger_testenv.overload import (
    SCENARIOS,
    Overloaded,
    Scenario,
    costly,
    loops_of,
    run,
    settings,
)
from outrigger_testenv.variants import good, tiny_builder

_MODEL = "overload"
# The time that all scenarios take together.
SECONDS = 160


def failed(setup: Setup, effort: Effort) -> Measurement:
    """The share of callers that failed, in percent, in the worst scenario."""
    del setup, effort
    return _worst(lambda course: 100 * course.failed / course.callers)


def slow(setup: Setup, effort: Effort) -> Measurement:
    """The seconds in which live was slow, in the worst scenario."""
    del setup, effort
    return _worst(lambda course: float(course.slow_seconds))


def _worst(figure: Callable[[Overloaded], float]) -> Measurement:
    courses = _courses()
    runs = [
        {"scenario": str(scenario), **dataclasses.asdict(course)}
        for scenario, course in zip(SCENARIOS, courses, strict=True)
    ]
    return Measurement([max(map(figure, courses))], runs=runs)


@cache
def _courses() -> Sequence[Overloaded]:
    """All scenarios. Raises Failed if a canary is not rolled back."""
    return [_course(scenario) for scenario in SCENARIOS]


def _course(scenario: Scenario) -> Overloaded:
    overrides = {
        "images": {"poll_interval": "1s"},
        "canary": {"defaults": settings(scenario)},
    }
    with tempfile.TemporaryDirectory() as directory, new_stack(overrides) as stack:
        work = Path(directory)
        stack.start()
        stack.push(tiny_builder().build(good, work / "live"), _MODEL)
        stack.client().load(_MODEL)
        canary = tiny_builder().build(costly(loops_of(scenario.cost)), work / "canary")
        course = run(stack, _MODEL, canary, scenario, work)
    if course.outcome != "OUTCOME_ROLLED_BACK":
        raise Failed(f"{scenario}: {course}")
    return course
