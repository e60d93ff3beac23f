"""All cases, in the order of the table."""

from dataclasses import replace

from outrigger_testenv.attack import (
    browsers,
    canary_keys,
    connections,
    directories,
    engines,
    jobs,
    names,
    overload,
    packages,
    pods,
    registries,
    remotes,
    requests,
    row_files,
    row_requests,
    settings,
    stores,
    tensor_requests,
)
from outrigger_testenv.attack.case import Case

# Cases whose bounds of time may not hold, with the reason, which the table has: what whole runs and
# runs of the case alone have measured.
UNDEFENDED = {
    "package-saved-model": "1.7 alone, up to 3.7 in a whole run: one of two cores unpacks 1.9 GiB",
    "requests-json-numbers": "1.2 alone, 7.7 in a whole run, 16.8 where processors are shared by "
    "session: 8 million numbers are read for seconds, by threads of a low priority",
    "connections-tiny-windows-clear": "1.7 alone, 3.5 in a whole run, where one delay of "
    "milliseconds decides",
    "connections-metrics": "3.2 in one run, held before: the text for 60 models is made meanwhile",
    "overload-goodput": "0.88 to 0.96 of the capacity were seen, and 0.9 is asked for",
    "overload-caller": "2.1 to 2.8 in every run, 9 ms instead of 3; 3 times are promised",
}

_ALL: list[Case] = [
    *registries.CASES,
    *packages.CASES,
    *directories.CASES,
    *requests.CASES,
    *row_requests.CASES,
    *tensor_requests.CASES,
    *row_files.CASES,
    *connections.CASES,
    *names.CASES,
    *overload.CASES,
    *engines.CASES,
    *canary_keys.CASES,
    *stores.CASES,
    *remotes.CASES,
    *pods.CASES,
    *browsers.CASES,
    *jobs.CASES,
    *settings.CASES,
]
CASES = [replace(case, undefended=UNDEFENDED.get(case.name, "")) for case in _ALL]


def chosen(prefix: str) -> list[Case]:
    """The cases whose names begin with the prefix."""
    return [case for case in CASES if case.name.startswith(prefix)]
