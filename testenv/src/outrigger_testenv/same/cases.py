"""Reads cases, and makes variations of those that ask for them.

A file of cases has a JSON document in each line, with a `name` that is unique in its folder. With
`"vary": {"at": [...], "count": N}` the case also stands for N variations of the value at this path,
drawn with a seed that is made of its name. A file whose name begins with `_` has texts for others.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrigger_testenv.binary import repository
from outrigger_testenv.same.vary import variations

DATA = repository() / "testenv" / "same"
KINDS = (
    "http",
    "grpc",
    "oip",
    "configuration",
    "commands",
    "faults",
    "full",
    "crowd",
    "jobs",
    "xgboost",
)


@dataclass(frozen=True)
class Case:
    """A case: its kind, its name with the kind in front, and its document."""

    kind: str
    name: str
    content: dict[str, Any]


def read(only: str = "") -> list[Case]:
    """All cases whose names begin so, in the order of their kinds and files."""
    found = [
        case
        for kind in KINDS
        for file in sorted((DATA / kind).glob("*.jsonl"))
        for case in _of_file(kind, file)
    ]
    names = [case.name for case in found]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"names that stand for two cases: {twice}")
    return [case for case in found if case.name.startswith(only)]


def _of_file(kind: str, file: Path) -> Iterator[Case]:
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{file}:{number}: {error}") from error
        vary = content.pop("vary", None)
        name = f"{kind}/{content.pop('name')}"
        yield Case(kind, name, content)
        if vary is not None:
            yield from _varied(Case(kind, name, content), vary["at"], vary["count"])


def _varied(case: Case, path: Sequence[str], count: int) -> Iterator[Case]:
    value = case.content
    for key in path:
        value = value[key]
    for label, changed in variations(value, case.name, count):
        content = copy.deepcopy(case.content)
        target = content
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = changed
        yield Case(case.kind, f"{case.name}/{label}", content)
