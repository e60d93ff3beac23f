"""Every case of values, for the tests that hold for all of them."""

import pytest

from outrigger_testenv.chart.cases import CASES


@pytest.fixture(params=list(CASES))
def case(request):
    """One after the other."""
    return CASES[request.param]
