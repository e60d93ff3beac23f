"""All cases, in the order of the table."""

from outrigger_testenv.attack import (
    browsers,
    connections,
    directories,
    engines,
    names,
    overload,
    packages,
    registries,
    remotes,
    requests,
    row_requests,
    tensor_requests,
)
from outrigger_testenv.attack.case import Case

CASES: list[Case] = [
    *registries.CASES,
    *packages.CASES,
    *directories.CASES,
    *requests.CASES,
    *row_requests.CASES,
    *tensor_requests.CASES,
    *connections.CASES,
    *names.CASES,
    *overload.CASES,
    *engines.CASES,
    *remotes.CASES,
    *browsers.CASES,
]


def chosen(prefix: str) -> list[Case]:
    """The cases whose names begin with the prefix."""
    return [case for case in CASES if case.name.startswith(prefix)]
