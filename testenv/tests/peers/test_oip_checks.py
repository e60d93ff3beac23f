"""Every check of a server of the Open Inference Protocol holds for Outrigger, over REST, over gRPC
and through the clients of other projects.
"""

from outrigger_testenv.conformance_oip import table
from outrigger_testenv.conformance_oip.check import NOT_TRIED
from outrigger_testenv.conformance_oip.page import of_outrigger
from outrigger_testenv.conformance_oip.runs import checks_of
from outrigger_testenv.oip import environments


def test_every_check_holds():
    environments.needs(environments.TRITONCLIENT, environments.KSERVE)
    outcomes = of_outrigger(checks_of(""))
    assert [table.text(outcome) for outcome in outcomes if not outcome.is_whole] == []
    seen = [each for outcome in outcomes for each in outcome.seen]
    assert [each.text for each in seen if each.verdict == NOT_TRIED] == []
