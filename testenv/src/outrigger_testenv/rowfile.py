"""Files of rows, as `outrigger validate --input` reads them."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.jsonform import features, http_request
from outrigger_testenv.requests import rows

Scores = Sequence[np.ndarray]


def write_csv(
    path: Path, users: pd.DataFrame, treatments: pd.DataFrame, expected: Scores | None = None
) -> None:
    """Writes a row for each user and treatment: their ids, their features, the expected score.

    A vector is a JSON list. An empty text cannot be told from an absent value.
    """
    names = [*dict.fromkeys([*map(str, users.columns), *map(str, treatments.columns)])]
    header = ["user", "treatment", *names, *(["expected"] if expected is not None else [])]
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, header)
        lines.writeheader()
        for at, (user, known) in enumerate(zip(users.index, rows(users), strict=True)):
            for index, (offer, row) in enumerate(
                zip(treatments.index, rows(treatments), strict=True)
            ):
                given = {name: _cell(value) for name, value in features({**known, **row}).items()}
                if expected is not None:
                    given["expected"] = _of_treatment(expected[at], index)
                lines.writerow({"user": user, "treatment": offer, **given})


def write_requests(
    path: Path, users: pd.DataFrame, treatments: pd.DataFrame, expected: Scores | None = None
) -> None:
    """Writes JSON Lines with a request in the HTTP form for each user."""
    with path.open("w", encoding="utf-8") as file:
        for at, (user, known) in enumerate(zip(users.index, rows(users), strict=True)):
            line: dict[str, Any] = {"routing_key": user, **http_request(known, treatments)}
            if expected is not None:
                line["expected"] = [float(score) for score in np.atleast_1d(expected[at])]
            file.write(json.dumps(line) + "\n")


def _of_treatment(scores: np.ndarray, index: int) -> float:
    """The score of a treatment; a model with one score per user has only one."""
    return float(scores[index] if len(scores) > 1 else scores[0])


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, list) else value
