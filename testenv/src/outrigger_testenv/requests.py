"""Converts rows of pandas frames to messages of `outrigger.v1`, in both forms.

A missing value (NaN, None, NA) is not sent.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv.sparse import Sparse

KEY_VALUE = "key_value"
TABLE = "table"


def rows(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of a frame, with every value in its column's own type."""
    columns = [frame[name].to_list() for name in frame.columns]
    names = [str(name) for name in frame.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))
    if not columns:
        yield from ({} for _ in range(len(frame)))


def user_features(row: Mapping[str, Any]) -> pb.FeatureMap:
    """Makes the message of one user's features."""
    features = pb.FeatureMap()
    fill(features.features, row)
    return features


def fill(features: Any, row: Mapping[str, Any]) -> None:
    """Sets the features of one row."""
    for name, value in row.items():
        if not is_absent(value):
            set_value(features[name], value)


def is_absent(value: Any) -> bool:
    """Whether pandas counts the value as missing; a list never is."""
    return value is None or (np.ndim(value) == 0 and bool(pd.isna(value)))


def set_value(target: pb.Value, value: Any) -> None:
    """Sets the kind by the value's type; a float that float32 represents exactly is sent as
    float32.
    """
    if isinstance(value, bool | np.bool_):
        target.flag = bool(value)
    elif isinstance(value, str):
        target.text = value
    elif isinstance(value, int | np.integer):
        target.integer = int(value)
    elif isinstance(value, float | np.floating):
        _set_float(target, float(value))
    elif isinstance(value, Sparse):
        target.sparse.CopyFrom(
            pb.SparseList(ids=value.ids, weights=value.weights, names=value.names)
        )
    elif np.ndim(value) == 1:
        _set_list(target, list(value))
    else:
        raise TypeError(f"{type(value).__name__} is no feature value")


def _set_float(target: pb.Value, value: float) -> None:
    with np.errstate(over="ignore"):
        single = float(np.float32(value))
    if np.isnan(value) or single == value:
        target.number = single
    else:
        target.real = value


def _set_list(target: pb.Value, values: list[Any]) -> None:
    if values and all(isinstance(value, str) for value in values):
        target.texts.values.extend(values)
    elif values and all(isinstance(value, int | np.integer) for value in values):
        target.integers.values.extend(int(value) for value in values)
    else:
        _set_floats(target, [float(value) for value in values])


def _set_floats(target: pb.Value, values: list[float]) -> None:
    with np.errstate(over="ignore"):
        singles = np.array(values, np.float32).astype(np.float64)
    if np.array_equal(singles, values, equal_nan=True):
        target.numbers.values.extend(values)
    else:
        target.reals.values.extend(values)


def treatments(frame: pd.DataFrame) -> list[pb.Treatment]:
    """The key-value form: one message per row, with its index label as the id."""
    messages = []
    for label, row in zip(frame.index, rows(frame), strict=True):
        message = pb.Treatment(id=str(label))
        fill(message.features, row)
        messages.append(message)
    return messages


def table(frame: pd.DataFrame) -> pb.TreatmentTable:
    """The columnar form. Floating point columns are sent as float32."""
    message = pb.TreatmentTable(count=len(frame), ids=[str(label) for label in frame.index])
    numbers = []
    for name in frame.columns:
        column = frame[name]
        if any(isinstance(value, Sparse) for value in column):
            _sparse_column(message, str(name), column)
        elif _holds(column, str):
            _text_column(message, str(name), column)
        elif _holds(column, int | np.integer):
            _integer_column(message, str(name), column)
        elif _is_ragged(column):
            _number_lists(message, str(name), column)
        else:
            numbers.append((str(name), column))
    if numbers:
        _matrix(message.numbers, numbers, len(frame))
    return message


def _holds(column: pd.Series, kind: Any) -> bool:
    """Whether a column's present values (for vectors, their elements) are all of a kind."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind != "O":
        return column.dtype.kind in "iu" and kind is not str
    values = [value for value in column if not is_absent(value)]
    flat = [part for value in values for part in (value if np.ndim(value) == 1 else [value])]
    return bool(flat) and all(
        isinstance(part, kind) and not isinstance(part, bool) for part in flat
    )


def _widths(column: pd.Series) -> set[int]:
    """The numbers of elements of present rows."""
    return {len(value) if np.ndim(value) == 1 else 1 for value in column if not is_absent(value)}


def _is_ragged(column: pd.Series) -> bool:
    """Whether rows have different numbers of elements, or none."""
    widths = _widths(column)
    return len(widths) > 1 or 0 in widths


def _present(column: pd.Series) -> np.ndarray:
    return np.array([not is_absent(value) for value in column], bool)


def _cells(column: pd.Series, filler: Any) -> tuple[list[Any], np.ndarray, int]:
    """The flat elements with absent rows filled, a mask of present rows, and elements per row."""
    width = max(_widths(column), default=1)
    present = _present(column)
    cells: list[Any] = []
    for value, here in zip(column, present, strict=True):
        cells.extend([filler] * width if not here else value if np.ndim(value) == 1 else [value])
    return cells, present, width


def _layout(column: pd.Series, filler: Any) -> tuple[list[Any], dict[str, Any]]:
    """The flat elements of a column, with the fields that divide them into rows: a width, or
    offsets if rows have different numbers of elements, or none.
    """
    present = _present(column)
    if not _is_ragged(column):
        cells, _, width = _cells(column, filler)
        return cells, {"width": width, "validity": bitmap(present)}
    lists = [
        [] if not here else list(value) if np.ndim(value) == 1 else [value]
        for value, here in zip(column, present, strict=True)
    ]
    offsets = np.cumsum([0, *(len(values) for values in lists)]).tolist()
    cells = [cell for values in lists for cell in values]
    return cells, {"row_offsets": offsets, "validity": bitmap(present)}


def bitmap(present: np.ndarray) -> bytes:
    """A validity bitmap, least significant bit first; empty if all values are present."""
    return b"" if present.all() else np.packbits(present.ravel(), bitorder="little").tobytes()


def _text_column(message: pb.TreatmentTable, name: str, column: pd.Series) -> None:
    cells, layout = _layout(column, "")
    message.texts.add(name=name, values=cells, **layout)


def _integer_column(message: pb.TreatmentTable, name: str, column: pd.Series) -> None:
    cells, layout = _layout(column, 0)
    message.integers.add(name=name, values=[int(cell) for cell in cells], **layout)


def _number_lists(message: pb.TreatmentTable, name: str, column: pd.Series) -> None:
    cells, layout = _layout(column, 0.0)
    message.lists.add(name=name, values=np.array(cells, "<f4").tobytes(), **layout)


def _sparse_column(message: pb.TreatmentTable, name: str, column: pd.Series) -> None:
    """A column of sparse lists. If some have weights, those of the others are 1."""
    present = _present(column)
    lists = [each if here else Sparse() for each, here in zip(column, present, strict=True)]
    if any(each.weights for each in lists):
        lists = [each.weighted() for each in lists]
    message.sparse.add(
        name=name,
        ids=[one for each in lists for one in each.ids],
        names=[one for each in lists for one in each.names],
        weights=np.array([one for each in lists for one in each.weights], "<f4").tobytes(),
        row_offsets=np.cumsum([0, *(len(each.ids) + len(each.names) for each in lists)]).tolist(),
        validity=bitmap(present),
    )


def _matrix(matrix: pb.Matrix, columns: list[tuple[str, pd.Series]], rows: int) -> None:
    blocks, presence, widths = [], [], []
    for name, column in columns:
        cells, present, width = _number_cells(column)
        matrix.names.append(name)
        blocks.append(cells.reshape(rows, width))
        presence.append(present)
        widths.append(width)
    if any(width != 1 for width in widths):
        matrix.widths.extend(widths)
    matrix.values = np.concatenate(blocks, axis=1).astype("<f4").tobytes()
    matrix.validity = bitmap(np.stack(presence, axis=1))


def _number_cells(column: pd.Series) -> tuple[np.ndarray, np.ndarray, int]:
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "f":
        values = column.to_numpy()
        present = ~np.isnan(values)
        return np.where(present, values, 0), present, 1
    cells, present, width = _cells(column, 0.0)
    return np.array(cells, np.float64), present, width
