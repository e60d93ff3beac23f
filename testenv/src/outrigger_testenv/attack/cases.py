"""All cases, in the order of the table."""

from outrigger_testenv.attack import (
    browsers,
    connections,
    engines,
    names,
    overload,
    packages,
    registries,
    requests,
    row_requests,
)
from outrigger_testenv.attack.case import Case

CASES: list[Case] = [
    *registries.CASES,
    *packages.CASES,
    *requests.CASES,
    *row_requests.CASES,
    *connections.CASES,
    *names.CASES,
    *overload.CASES,
    *engines.CASES,
    *browsers.CASES,
]


def chosen(prefix: str) -> list[Case]:
    """The cases whose names begin with the prefix."""
    return [case for case in CASES if case.name.startswith(prefix)]
