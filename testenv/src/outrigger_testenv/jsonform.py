"""The HTTP JSON form of a request, which golden cases contain."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.requests import is_absent, rows
from outrigger_testenv.sparse import Sparse


def http_request(user: Mapping[str, Any], treatments: pd.DataFrame | None) -> dict[str, Any]:
    """The request `{"user": {...}, "treatments": [{"id", "features"}]}`; absent features are
    omitted.
    """
    body: dict[str, Any] = {"user": features(user)}
    if treatments is not None:
        body["treatments"] = [
            {"id": str(label), "features": features(row)}
            for label, row in zip(treatments.index, rows(treatments), strict=True)
        ]
    return body


def features(row: Mapping[str, Any]) -> dict[str, Any]:
    """The present features of one row as JSON values."""
    return {str(name): _plain(value) for name, value in row.items() if not is_absent(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, Sparse):
        return value.to_json()
    if np.ndim(value) == 1:
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value
