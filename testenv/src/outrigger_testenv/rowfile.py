"""Files of rows, as `outrigger validate --input` reads them.

There are three forms: a row for each user and treatment, a row with lists of treatments for each
user, and a request in the HTTP form for each user.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.jsonform import features, http_request
from outrigger_testenv.requests import rows

Scores = Sequence[np.ndarray]
Row = dict[str, Any]


def write_csv(
    path: Path, users: pd.DataFrame, treatments: pd.DataFrame, expected: Scores | None = None
) -> None:
    """Writes CSV with a row for each user and treatment.

    A vector is a JSON list. An empty text cannot be told from an absent value.
    """
    lines = list(_rows(users, treatments, expected))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)


def write_parquet(
    path: Path, users: pd.DataFrame, treatments: pd.DataFrame, expected: Scores | None = None
) -> None:
    """Writes Parquet with a row for each user and treatment."""
    _write_table(path, _rows(users, treatments, expected))


def write_list_parquet(
    path: Path, users: pd.DataFrame, treatments: pd.DataFrame, expected: Scores | None = None
) -> None:
    """Writes Parquet with a row for each user, and its treatments in lists."""
    _write_table(path, _lists(users, treatments, expected))


def write_lists(
    path: Path, users: pd.DataFrame, treatments: pd.DataFrame, expected: Scores | None = None
) -> None:
    """Writes JSON Lines with a row for each user, and its treatments in lists."""
    _write_lines(path, _lists(users, treatments, expected))


def write_requests(
    path: Path, users: pd.DataFrame, treatments: pd.DataFrame, expected: Scores | None = None
) -> None:
    """Writes JSON Lines with a request in the HTTP form for each user."""
    _write_lines(path, _requests(users, treatments, expected))


def _rows(users: pd.DataFrame, treatments: pd.DataFrame, expected: Scores | None) -> Iterator[Row]:
    """A row for each user and treatment: their ids, their features, the expected score."""
    offers = list(zip(map(str, treatments.index), rows(treatments), strict=True))
    empty = dict.fromkeys([*map(str, users.columns), *map(str, treatments.columns)])
    for at, (user, known) in enumerate(zip(users.index, rows(users), strict=True)):
        for index, (offer, row) in enumerate(offers):
            line = {"user": str(user), "treatment": offer, **empty, **features({**known, **row})}
            if expected is not None:
                line["expected"] = _of_treatment(expected[at], index)
            yield line


def _lists(users: pd.DataFrame, treatments: pd.DataFrame, expected: Scores | None) -> Iterator[Row]:
    """A row for each user: the features of the user, and lists with the ids, the features and the
    expected scores of the treatments.
    """
    present = [features(row) for row in rows(treatments)]
    offers = {str(name): [row.get(str(name)) for row in present] for name in treatments.columns}
    ids, empty = [str(offer) for offer in treatments.index], dict.fromkeys(map(str, users.columns))
    for at, (user, known) in enumerate(zip(users.index, rows(users), strict=True)):
        line = {"user": str(user), "treatment": ids, **empty, **features(known), **offers}
        if expected is not None:
            line["expected"] = _of_all(expected[at])
        yield line


def _requests(
    users: pd.DataFrame, treatments: pd.DataFrame, expected: Scores | None
) -> Iterator[Row]:
    for at, (user, known) in enumerate(zip(users.index, rows(users), strict=True)):
        line: Row = {"routing_key": user, **http_request(known, treatments)}
        if expected is not None:
            line["expected"] = _of_all(expected[at])
        yield line


def _write_lines(path: Path, lines: Iterator[Row]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def _write_table(path: Path, lines: Iterator[Row]) -> None:
    import pyarrow
    from pyarrow import parquet

    # Not through a frame, which turns integers into floats where one of them is absent.
    parquet.write_table(pyarrow.Table.from_pylist(list(lines)), path)


def _of_treatment(scores: np.ndarray, index: int) -> float:
    """The score of a treatment; a model with one score per user has only one."""
    return float(scores[index] if len(scores) > 1 else scores[0])


def _of_all(scores: np.ndarray) -> list[float]:
    return [float(score) for score in np.atleast_1d(scores)]


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, list) else value
