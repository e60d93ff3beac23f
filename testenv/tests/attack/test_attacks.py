"""The short form of `make attack`: memory, outcomes and reasons, but no times."""

import pytest

from outrigger_testenv.attack.cases import CASES
from outrigger_testenv.attack.runner import UNTIMED, run

# Cases of `make attack` only, and the reason why.
LEFT_OUT = {
    "package-saved-model": "package-saved-models reads three of them",
    "registry-less": "waits for the attempts of a pull",
    "registry-silent": "waits for the registry's timeout",
    "overload-goodput": "is judged by times",
    "overload-caller": "is judged by times",
    "names-tags": "is judged by processor time",
    "names-unknown": "takes a quarter of a minute",
    "names-refused": "takes a quarter of a minute",
    # test_crashes.py has these in a shorter form.
    "engine-load": "takes half a minute",
    "engine-first-run": "takes half a minute",
    "engine-request": "takes half a minute",
    "engine-killed": "requests fail while the engine is away",
    "engine-held": "takes half a minute; test_long_runs.py has it in a shorter form",
}
SHORT = [case for case in CASES if case.name not in LEFT_OUT]


@pytest.mark.parametrize("case", SHORT, ids=lambda case: case.name)
def test_an_attack_harms_nobody(scene, case):
    row = run(case, scene, UNTIMED)
    assert row.held, row.broken


def test_every_case_that_is_left_out_exists():
    assert LEFT_OUT.keys() <= {case.name for case in CASES}
