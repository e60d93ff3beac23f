"""The short form of `make attack`: memory, outcomes and reasons, but no times."""

import pytest

from outrigger_testenv.attack.cases import CASES
from outrigger_testenv.attack.runner import UNTIMED, run

# Cases of `make attack` only, and the reason why.
LEFT_OUT = {
    "registry-less": "waits for the attempts of a pull",
    "registry-silent": "waits for the registry's timeout",
    "overload-goodput": "is judged by times",
    "overload-caller": "is judged by times",
    "names-tags": "is judged by processor time",
    # These bounds do not hold yet.
    "registry-drip": "dripping pulls stop all others",
    "registry-claim": "claims take the store before their bytes arrive",
    "connections-idle": "idle connections take all descriptors",
    "connections-slow-bodies": "slow bodies take all places",
    "names-unknown": "unknown names stop new models",
    # test_crashes.py has these in a shorter form.
    "engine-load": "takes half a minute",
    "engine-first-run": "takes half a minute",
    "engine-request": "takes half a minute",
    "engine-killed": "requests fail while the engine is away",
}
SHORT = [case for case in CASES if case.name not in LEFT_OUT]


@pytest.mark.parametrize("case", SHORT, ids=lambda case: case.name)
def test_an_attack_harms_nobody(scene, case):
    row = run(case, scene, UNTIMED)
    assert row.held, row.broken


def test_every_case_that_is_left_out_exists():
    assert LEFT_OUT.keys() <= {case.name for case in CASES}
