"""Stage 1, environment: other servers of the Open Inference Protocol run here, and the checks see
where they differ from the rules. So a check can fail.
"""

import pytest

from outrigger_testenv.conformance_oip import table
from outrigger_testenv.conformance_oip.check import MARKS
from outrigger_testenv.conformance_oip.page import of_peer
from outrigger_testenv.conformance_oip.runs import checks_of
from outrigger_testenv.oip import environments

ENVIRONMENTS = {
    "Triton": environments.TRITON,
    "MLServer": environments.MLSERVER,
    "KServe": environments.KSERVE,
}
# The marks of the checks by tens: those of 1 to 10, of 11 to 20, and so on.
KNOWN = {
    "Triton": "✓✓✗✗✗✗✗✓✓✗ ✓✓✓✗✗✗✓✓✗✗ ✗✗✓✗✓✓✗✗✗✓ ✗✗✓✓✗✓✓✓✓✓ ✗✓✗✗✓✗✗✓✓✓ "
    "✗✓✓✓✗✓✗✗✓✓ ✗✗✗✗✓✓✓✓✗✓ ✓✓✓✓✓✓✗✓✓✗ ✓✗✓✓✗✓✗✗",
    "MLServer": "✓✓✗✗✗✓✗✓✗✗ ✗✗✓✓✗✗✓✓✗✗ ✗✗✓✗✗✗✗✗✗✓ ✗✗✓✗✗✗✗✗✓✗ ✗✗✗✗✗✗✗✓✓✓ "
    "✗✓✗✗✓✗✗-✓✓ ✗✗✗✗------ --------✓✓ ✗✗✗✗✗✓✗✗",
    "KServe": "✓✗✗✗✓✓✗✓✗✗ ✗✗✗✗✗✗✓✓✗✗ ✗✗✓✗✗✗✗✗✗✓ ✗✓✓✓✗✗✗✗✓✗ ✗✗✗✗✗✗✗✓✓✗ "
    "✗✗✓✗✗✗✗✓✓✗ ✗✗✗✗-✓✗✓✗✓ ✓✗✗✗✗✗✗✓✓✓ ✓✗✗✗✗✓✗✗",
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_checks_see_what_is_known_of_a_server(name, tmp_path):
    environments.needs(ENVIRONMENTS[name], environments.TRITONCLIENT, environments.KSERVE)
    outcomes = of_peer(name, tmp_path, checks_of(""))
    seen = "".join(MARKS[outcome.verdict] for outcome in outcomes)
    assert _tens(seen) == KNOWN[name].split(), table.markdown({name: outcomes})


def _tens(marks):
    return [marks[at : at + 10] for at in range(0, len(marks), 10)]
