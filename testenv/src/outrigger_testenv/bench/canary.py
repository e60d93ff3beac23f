"""Canaries: the judge on simulated ones, and the cost of a trial for requests."""

import re
from functools import cache
from pathlib import Path

from outrigger_testenv.bench.figure import FULL, Effort, Failed, Measurement
from outrigger_testenv.bench.programs import CANARY, CANARY_PATH, output_of
from outrigger_testenv.bench.setup import Setup


def simulated(name: str, setup: Setup, effort: Effort) -> Measurement:
    """A figure of the simulation. One run gives all of them; with less effort it simulates fewer
    canaries.
    """
    canaries = 10_000 if effort == FULL else 200
    output = run(setup.programs[CANARY], canaries)
    return Measurement([value(name, output)], {"canaries": canaries})


def path(setup: Setup, effort: Effort) -> Measurement:
    """The server's additional CPU time for a request while its model has a canary on trial, in
    microseconds.
    """
    del effort
    output = output_of(setup.programs[CANARY_PATH])
    without = value("canary-path-without", output) / 1e3
    more = [nanoseconds / 1e3 for nanoseconds in values("canary-path", output)]
    return Measurement(more, runs=[{"request_us": without}])


@cache
def run(program: Path, canaries: int) -> str:
    """The simulation's output with `canaries` canaries of each kind. Raises CalledProcessError."""
    return output_of(program, CANARIES=str(canaries))


def value(name: str, output: str) -> float:
    """The value in the first line `bench <name> <value> <unit>`. Raises Failed if there is none."""
    return values(name, output)[0]


def values(name: str, output: str) -> list[float]:
    """The values in all lines `bench <name> <value> <unit>`. Raises Failed if there is none."""
    found = re.findall(rf"^bench {re.escape(name)} (\S+) \S+$", output, re.MULTILINE)
    if not found:
        raise Failed(f"the benchmark prints no {name}")
    return [float(each) for each in found]
