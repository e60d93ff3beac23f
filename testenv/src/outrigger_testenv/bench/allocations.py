"""Heap allocations of a request, as counted by the test that limits them."""

import re
from functools import cache
from pathlib import Path

from outrigger_testenv.bench.figure import Effort, Failed, Measurement
from outrigger_testenv.bench.programs import ALLOCATION_COUNTER, output_of
from outrigger_testenv.bench.setup import Setup


def counted(name: str, setup: Setup, effort: Effort) -> Measurement:
    """The count that the test prints for `name`. Raises Failed."""
    del effort
    return Measurement([count(name, run(setup.programs[ALLOCATION_COUNTER]))])


@cache
def run(program: Path) -> str:
    """The test's output. Raises CalledProcessError."""
    return output_of(program, "--nocapture")


def count(name: str, output: str) -> int:
    """The count in the line `bench <name> <count> allocations`. Raises Failed if there is none."""
    found = re.search(rf"\bbench {re.escape(name)} (\d+) allocations$", output, re.MULTILINE)
    if found is None:
        raise Failed(f"the test counts no {name}")
    return int(found[1])
