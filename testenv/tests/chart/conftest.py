"""The cases of values, for tests that apply to all of them."""

import pytest

from outrigger_testenv.chart.cases import ALL_CASES, CASES
from outrigger_testenv.chart.render import BATCH_CHART, CHART


@pytest.fixture(params=[CHART, BATCH_CHART], ids=lambda chart: chart.name)
def chart(request):
    """The directory of each chart in turn."""
    return request.param


@pytest.fixture(params=list(CASES))
def case(request):
    """Each case of values in turn."""
    return CASES[request.param]


@pytest.fixture(params=list(ALL_CASES))
def any_case(request):
    """Each case of values of both charts in turn."""
    return ALL_CASES[request.param]
