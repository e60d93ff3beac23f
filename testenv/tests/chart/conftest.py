"""The cases of values, for tests that apply to all of them."""

import pytest

from outrigger_testenv.chart.cases import CASES


@pytest.fixture(params=list(CASES))
def case(request):
    """Each case of values in turn."""
    return CASES[request.param]
