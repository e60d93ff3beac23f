"""The short form of `make attack`: memory, outcomes and reasons, but no times."""

import pytest

from outrigger_testenv.attack.cases import CASES
from outrigger_testenv.attack.runner import UNTIMED, run

# The other cases are judged by times, or take longer than a test may.
LONG = {}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in LONG], ids=lambda case: case.name
)
def test_an_attack_harms_nobody(scene, case):
    row = run(case, scene, UNTIMED)
    assert row.held, row.broken
