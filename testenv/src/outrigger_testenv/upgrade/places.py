"""Where the fixtures of the previous version are."""

from outrigger_testenv.binary import repository

FIXTURES = repository() / "testenv" / "tests" / "upgrade" / "fixtures"
CONFIGURATION = FIXTURES / "configuration"
CHART_VALUES = FIXTURES / "chart"
STORE = FIXTURES / "store"
# Beside the store and not in it, because the server manages the store's content.
SERVED = FIXTURES / "served"
