"""Where the fixtures of the previous version are."""

from outrigger_testenv.binary import repository

FIXTURES = repository() / "testenv" / "tests" / "upgrade" / "fixtures"
CONFIGURATION = FIXTURES / "configuration"
CHART_VALUES = FIXTURES / "chart"
STORE = FIXTURES / "store"
# Beside the store, since the server decides what lies in it.
SERVED = FIXTURES / "served"
