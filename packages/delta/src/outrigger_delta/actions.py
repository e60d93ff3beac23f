"""The `add` actions of a commit, for files that are there already.

Form: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#add-file-and-remove-file
"""

import datetime
import json
import time
from typing import Any

import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from outrigger_delta.output import DATA, Output

# Types of values whose smallest and largest are taken from Parquet. Texts may be cut off there,
# and floats leave NaN out.
_BOUNDED = (int, datetime.date)


def add_actions(output: Output, ends: list[pq.FileMetaData]) -> list[AddAction]:
    """An action for each file, whose path is that in the directory of the data."""
    now = int(time.time() * 1000)
    return [
        AddAction(
            path=file.name.removeprefix(f"{DATA}/"),
            size=file.size,
            partition_values={},
            modification_time=now,
            data_change=True,
            stats=json.dumps(statistics(end)),
        )
        for file, end in zip(output.files, ends, strict=True)
    ]


def statistics(end: pq.FileMetaData) -> dict[str, Any]:
    """The statistics of a file in the form of Delta Lake: the number of rows, and for columns
    without parts the absent values, and the smallest and largest integer or day.
    """
    found: dict[str, Any] = {"numRecords": end.num_rows}
    groups = [end.row_group(index) for index in range(end.num_row_groups)]
    for index in range(end.num_columns):
        name = end.schema.column(index).path
        parts = [group.column(index) for group in groups]
        if "." in name or end.schema.column(index).max_repetition_level:
            continue
        known = [part.statistics for part in parts if part.statistics]
        if len(known) < len(parts) or not parts:
            continue
        if all(each.has_null_count for each in known):
            found.setdefault("nullCount", {})[name] = sum(each.null_count for each in known)
        if not all(each.has_min_max for each in known):
            continue
        low, high = min(each.min for each in known), max(each.max for each in known)
        if type(low) in _BOUNDED:
            found.setdefault("minValues", {})[name] = _text(low)
            found.setdefault("maxValues", {})[name] = _text(high)
    return found


def _text(value: int | datetime.date) -> int | str:
    return value.isoformat() if isinstance(value, datetime.date) else value
