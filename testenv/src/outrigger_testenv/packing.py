"""Packs features into tensors as the control plane does.

`pack` gives training the same tensors that serving will feed: same order, defaults, vocabularies
and hashes, and the same bytes.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv import sparse
from outrigger_testenv.elements import PackingError, absences, elements, numpy_dtype
from outrigger_testenv.features import (
    JOINED,
    SEED,
    TREATMENT,
    TREATMENT_COUNT,
    USER,
    Feature,
    Input,
    Metadata,
)

Treatments = pd.DataFrame | Sequence[pd.DataFrame]


def pack(
    metadata: Metadata,
    users: pd.DataFrame,
    treatments: Treatments,
    counts: Sequence[int] | None = None,
) -> dict[str, np.ndarray]:
    """Tensors by input name: user [B, width], treatment [B, T, width], treatment_count [B], and
    joined [R, width] with a row for each treatment of each user; of an input with lengths, the
    values of all lists [N], and the lengths [B] or [B, T]; of one with weights too, the ids and the
    weights of all rows [N], and the lengths [B], [B, T] or [R].

    `users` has one row per user. `treatments` is one frame for all users, or one frame per user,
    or, with `counts`, the rows of all users in one frame. NaN, None and NA in a frame mean that the
    feature is absent. Texts are bytes objects.
    """
    sizes, rows = _layout(len(users), treatments, counts)
    shared = rows is treatments and counts is None
    tensors = {}
    for each in metadata.inputs:
        if each.weights is not None:
            tensors |= sparse.tensors(each, users, rows, (sizes, shared))
        elif each.lengths is not None:
            own = None if each.entity == USER else (sizes, shared)
            lists = _lists(each, users if own is None else rows)
            tensors |= _ragged(each, lists, own)
        elif each.entity == USER:
            tensors[each.tensor] = _table(each, users)
        elif each.entity == TREATMENT:
            tensors[each.tensor] = _padded(_table(each, rows), sizes, shared=shared)
        elif each.entity == JOINED:
            of_user = np.repeat(np.arange(len(users)), sizes)
            of_treatment = np.tile(np.arange(len(rows)), len(users) if shared else 1)
            sources = {USER: (users, of_user), TREATMENT: (rows, of_treatment)}
            tensors[each.tensor] = _joined(each, sources)
        elif each.entity == TREATMENT_COUNT:
            tensors[each.tensor] = np.array(sizes, dtype=each.dtype)
        elif each.entity == SEED:
            raise PackingError(
                f"{each.tensor}: a seed comes from the request's id, not from a frame"
            )
    return tensors


def _layout(
    users: int, treatments: Treatments, counts: Sequence[int] | None
) -> tuple[list[int], pd.DataFrame]:
    if isinstance(treatments, pd.DataFrame):
        if counts is None:
            return [len(treatments)] * users, treatments
        sizes, rows = [int(count) for count in counts], treatments
    else:
        sizes = [len(frame) for frame in treatments]
        rows = pd.concat(treatments, ignore_index=True) if sizes else pd.DataFrame()
    if len(sizes) != users or sum(sizes) != len(rows):
        raise PackingError(
            f"{users} users, {len(sizes)} counts over {len(rows)} rows of treatments"
        )
    return sizes, rows


def _lists(each: Input, frame: pd.DataFrame) -> list[np.ndarray]:
    """The encoded list of each row of a frame."""
    [feature] = each.features
    dtype = numpy_dtype(each.dtype)
    present = [None] * len(frame)
    if feature.name in frame.columns:
        gone = absences(frame[feature.name])
        values = frame[feature.name]
        present = [None if away else value for value, away in zip(values, gone, strict=True)]
    lists = []
    for at, value in enumerate(present):
        if value is None and feature.default is None:
            raise PackingError(f'row {at} has no "{feature.name}", which is required')
        lists.append(_list(feature, dtype, feature.default if value is None else value))
    return lists


def _list(feature: Feature, dtype: np.dtype, value: Any) -> np.ndarray:
    """Encodes the values of a list, without its padding."""
    values = np.asarray(value)
    values = values[None] if values.ndim == 0 else values
    if values.ndim != 1 or len(values) > feature.width:
        shape = values.shape
        raise PackingError(f'"{feature.name}" has shape {shape}, at most {feature.width} values')
    if len(values) == 0:
        return np.empty(0, dtype)
    return np.array(elements(feature, dtype, values), dtype)


def _ragged(
    each: Input, lists: list[np.ndarray], treatments: tuple[list[int], bool] | None
) -> dict[str, np.ndarray]:
    """The values and the lengths of lists; `treatments` has the number of each user's rows, and
    whether all users share them.
    """
    lengths = np.array([len(values) for values in lists], np.int64)
    if treatments is not None:
        sizes, shared = treatments
        lists = lists * len(sizes) if shared else lists
        lengths = _padded(lengths[:, None], sizes, shared)[:, :, 0]
    empty = np.empty(0, numpy_dtype(each.dtype))
    values = np.concatenate([empty, *lists])
    return {each.tensor: values, str(each.lengths): np.ascontiguousarray(lengths)}


def _padded(rows: np.ndarray, sizes: list[int], shared: bool) -> np.ndarray:
    """Pads [rows, width] to [B, T, width], where T is the largest size; the padding is zeros or
    empty texts.
    """
    if shared:
        return np.ascontiguousarray(np.broadcast_to(rows, (len(sizes), *rows.shape)))
    tensor = np.full(
        (len(sizes), max(sizes, default=0), rows.shape[1]), _zero(rows.dtype), rows.dtype
    )
    ends = np.cumsum([0, *sizes])
    for user, (start, end) in enumerate(pairwise(ends)):
        tensor[user, : end - start] = rows[start:end]
    return tensor


def _zero(dtype: np.dtype) -> Any:
    return b"" if dtype.kind == "O" else dtype.type(0)


def _table(each: Input, frame: pd.DataFrame) -> np.ndarray:
    """Encodes a frame: one row per row, with the features side by side in the file's order."""
    dtype = numpy_dtype(each.dtype)
    table = np.empty((len(frame), each.width), dtype)
    offset = 0
    for feature in each.features:
        table[:, offset : offset + feature.width] = _column(feature, dtype, frame)
        offset += feature.width
    return table


def _joined(each: Input, sources: Mapping[str, tuple[pd.DataFrame, np.ndarray]]) -> np.ndarray:
    """Encodes rows that have features of several frames. `sources` has by entity the frame, and for
    each row the position in the frame.
    """
    dtype = numpy_dtype(each.dtype)
    columns = []
    for feature in each.features:
        frame, positions = sources[feature.entity]
        columns.append(_column(feature, dtype, frame)[positions])
    return np.concatenate(columns, axis=1)


def _column(feature: Feature, dtype: np.dtype, frame: pd.DataFrame) -> np.ndarray:
    """Encodes a feature's column as [rows, feature.width], with absent values filled in."""
    if feature.name not in frame.columns:
        return np.broadcast_to(_absent(feature, dtype, 0), (len(frame), feature.width))
    series = frame[feature.name]
    gone = absences(series)
    column = np.empty((len(frame), feature.width), dtype)
    column[~gone] = _encode(feature, dtype, series[~gone])
    if gone.any():
        column[gone] = _absent(feature, dtype, int(np.argmax(gone)))
    return column


def _absent(feature: Feature, dtype: np.dtype, at: int) -> np.ndarray:
    """The elements that stand for an absent value; the error names the row `at`."""
    if feature.default is not None:
        return _encode(feature, dtype, pd.Series([feature.default]))[0]
    if feature.missing == "nan":
        return np.full(feature.width, np.nan, dtype)
    raise PackingError(f'row {at} has no "{feature.name}", which is required')


def _encode(feature: Feature, dtype: np.dtype, series: pd.Series) -> np.ndarray:
    """Encodes values, none of them absent, as [values, feature.width]."""
    if feature.max is not None:
        padding = feature.padding.encode() if dtype.kind == "O" else feature.padding
        encoded = np.full((len(series), feature.width), padding, dtype)
        for row, value in zip(encoded, series, strict=True):
            values = _list(feature, dtype, value)
            row[: len(values)] = values
        return encoded
    values = series.to_numpy() if feature.length is None else _flat(feature, series)
    return np.array(elements(feature, dtype, values), dtype).reshape(len(series), feature.width)


def _flat(feature: Feature, series: pd.Series) -> np.ndarray:
    rows = [np.asarray(row) for row in series]
    for row in rows:
        if row.shape != (feature.length,):
            raise PackingError(
                f'"{feature.name}" has shape {row.shape} instead of ({feature.length},)'
            )
    return np.concatenate(rows) if rows else np.empty(0)


def constants(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Converts arrays to TensorFlow's tensors."""
    import tensorflow as tf

    return {name: tf.constant(tensor) for name, tensor in tensors.items()}
