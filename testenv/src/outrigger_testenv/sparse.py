"""Sparse features: ids with weights, and the tensors of rows that consist of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.elements import PackingError, absences, cast, elements
from outrigger_testenv.features import JOINED, TREATMENT, USER, Feature, Input

Entries = list[tuple[int, float]]


@dataclass(frozen=True)
class Sparse:
    """A value of a sparse feature: ids, or names of ids, each with a weight; without weights all
    are 1.
    """

    ids: Sequence[int] = ()
    weights: Sequence[float] = ()
    names: Sequence[str] = ()

    def weighted(self) -> "Sparse":
        """The same value with its weights, which are 1 if it has none."""
        ones = [1.0] * (len(self.ids) + len(self.names))
        return Sparse(self.ids, self.weights or ones, self.names)

    def to_json(self) -> dict[str, Any]:
        """The value in the HTTP form of a request."""
        lists = {"ids": self.ids, "names": self.names, "weights": self.weights}
        return {key: [_plain(each) for each in values] for key, values in lists.items() if values}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def tensors(
    each: Input, users: pd.DataFrame, treatments: pd.DataFrame, layout: tuple[list[int], bool]
) -> dict[str, np.ndarray]:
    """The ids, the weights and the lengths of an input's rows. `layout` has the number of each
    user's treatments, and whether all users share them.
    """
    sizes, shared = layout
    of = {
        entity: _rows([one for one in each.features if (one.entity or each.entity) == entity], rows)
        for entity, rows in ((USER, users), (TREATMENT, treatments))
    }
    offered = of[TREATMENT] * len(sizes) if shared else of[TREATMENT]
    if each.entity == USER:
        rows, lengths = of[USER], np.array([len(row) for row in of[USER]], np.int64)
    elif each.entity == TREATMENT:
        rows, lengths = offered, _padded([len(row) for row in offered], sizes)
    else:
        assert each.entity == JOINED
        owners = np.repeat(np.arange(len(sizes)), sizes)
        rows = [of[USER][user] + row for user, row in zip(owners, offered, strict=True)]
        lengths = np.array([len(row) for row in rows], np.int64)
    entries = [entry for row in rows for entry in row]
    ids = np.array([one for one, _ in entries], np.uint64)
    weights = np.array([weight for _, weight in entries], np.float32)
    return {each.tensor: ids.view(np.int64), str(each.weights): weights, str(each.lengths): lengths}


def _padded(lengths: Iterable[int], sizes: list[int]) -> np.ndarray:
    """Lengths [B, T], with 0 for padding rows."""
    padded = np.zeros((len(sizes), max(sizes, default=0)), np.int64)
    rest = iter(lengths)
    for user, size in enumerate(sizes):
        padded[user, :size] = [next(rest) for _ in range(size)]
    return padded


def _rows(features: Sequence[Feature], frame: pd.DataFrame) -> list[Entries]:
    """The ids and weights of each row of a frame, one feature after the other."""
    rows: list[Entries] = [[] for _ in range(len(frame))]
    for feature in features:
        values: list[Any] = [None] * len(frame)
        if feature.name in frame.columns:
            series = frame[feature.name]
            gone = absences(series)
            values = [None if away else one for one, away in zip(series, gone, strict=True)]
        for at, value in enumerate(values):
            if value is None and feature.default is None:
                raise PackingError(f'row {at} has no "{feature.name}", which is required')
            rows[at] += _entries(feature, feature.default if value is None else value)
    return rows


def _entries(feature: Feature, value: Any) -> Entries:
    if feature.id is not None:
        weights = cast(feature, np.dtype(np.float32), np.atleast_1d(np.asarray(value)))
        return [(feature.id, float(weight)) for weight in weights]
    if not isinstance(value, Sparse):
        values = list(np.atleast_1d(np.asarray(value, object)))
        are_names = any(isinstance(one, str) for one in values)
        value = Sparse(names=values) if are_names else Sparse(ids=values)
    words = [*value.ids, *value.names]
    weights = list(value.weights) or [1.0] * len(words)
    if len(weights) != len(words) or len(words) > int(feature.max or 0):
        raise PackingError(
            f'"{feature.name}" has {len(words)} ids and {len(weights)} weights, '
            f"at most {feature.max}"
        )
    weights = cast(feature, np.dtype(np.float32), np.array(weights, np.float64))
    entries = zip(_ids(feature, words), weights, strict=True)
    return [(one, float(weight)) for one, weight in entries if one is not None]


def _ids(feature: Feature, words: list[Any]) -> list[int | None]:
    """The id of each word; None for a word that is left out."""
    if not words:
        return []
    if isinstance(feature.vocabulary, dict):
        if not all(isinstance(word, str) for word in words):
            raise PackingError(f'"{feature.name}" takes names')
        return [feature.vocabulary.get(word, feature.out_of_vocabulary) for word in words]
    if feature.vocabulary is not None or feature.hash_buckets is not None:
        found = elements(feature, np.dtype(np.int64), np.array(words))
        return [None if one is None else int(one) for one in found]
    for word in words:
        if isinstance(word, bool | str) or not 0 <= word < 2**64 or word != int(word):
            raise PackingError(f'"{feature.name}" has a value that is no id')
    return [int(word) for word in words]
