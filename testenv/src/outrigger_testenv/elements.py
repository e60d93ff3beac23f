"""Encodes values of features as elements of tensors."""

from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.features import Feature


class PackingError(ValueError):
    """The control plane would refuse this value too; the message names the feature."""


def numpy_dtype(dtype: str) -> np.dtype:
    """The dtype of an array for a dtype of metadata.json."""
    return np.dtype(object if dtype == "string" else dtype)


def absences(series: pd.Series) -> np.ndarray:
    """A mask of the values that are missing: NaN, None and NA."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiub":
        return series.isna().to_numpy()
    return np.array(
        [value is None or (np.ndim(value) == 0 and bool(pd.isna(value))) for value in series], bool
    )


def elements(feature: Feature, dtype: np.dtype, values: np.ndarray) -> Any:
    """Encodes values one by one."""
    if feature.vocabulary is not None:
        index = {word: at for at, word in enumerate(feature.vocabulary)}
        numbers = isinstance(feature.vocabulary[0], int)
        words = cast(feature, np.dtype("i8"), values) if numbers else _strings(feature, values)
        return [index.get(word, feature.out_of_vocabulary) for word in words]
    if feature.hash_buckets is not None:
        return _hash(_strings(feature, values), feature.hash_buckets)
    if dtype.kind == "O":
        return [word.encode() for word in _strings(feature, values)]
    if dtype.kind == "b":
        return _flags(feature, values)
    return cast(feature, dtype, values)


def cast(feature: Feature, dtype: np.dtype, values: np.ndarray) -> np.ndarray:
    """Converts numbers to a dtype; raises PackingError for those that it cannot hold."""
    if values.dtype.kind not in "fiu":
        values = np.array([_number(feature, value) for value in values])
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
    if dtype.kind == "f":
        bad = np.isfinite(values) != np.isfinite(cast)
        if bad.any() or not (feature.allow_non_finite or np.isfinite(cast).all()):
            raise PackingError(f'"{feature.name}" is not finite')
    elif not (cast.astype(values.dtype) == values).all():
        raise PackingError(f'"{feature.name}" has a value that no {dtype} holds')
    return cast


def _number(feature: Feature, value: Any) -> Any:
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return value
    raise PackingError(f'"{feature.name}" is {type(value).__name__} instead of a number')


def _strings(feature: Feature, values: np.ndarray) -> list[str]:
    for value in values:
        if not isinstance(value, str):
            raise PackingError(f'"{feature.name}" is {type(value).__name__} instead of text')
    return list(values)


def _flags(feature: Feature, values: np.ndarray) -> list[bool]:
    for value in values:
        if isinstance(value, str) or value not in (0, 1):
            raise PackingError(f'"{feature.name}" is neither a flag nor 0 or 1')
    return list(values)


def _hash(texts: list[str], buckets: int) -> np.ndarray:
    import tensorflow as tf

    return tf.strings.to_hash_bucket_fast(tf.constant(texts, tf.string), buckets).numpy()
