"""profile.json: what a model's features looked like at its training.

The server holds the features of requests against it (docs/model-package.md).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.features import TREATMENT, USER, Feature, Input, Metadata

SCHEMA = "outrigger.dev/profile/v1"

# Bins of a number, and words of a vocabulary, are at most so many.
BINS = 10
MOST_WORDS = 100


def profile(metadata: Metadata, users: pd.DataFrame, treatments: pd.DataFrame) -> dict[str, Any]:
    """The content of profile.json, from a row a user and a row a treatment.

    A column that a frame does not have was missing everywhere. Vectors, texts, hashed
    words and vocabularies of more than 100 words are left out.
    """
    frames = {USER: users, TREATMENT: treatments}
    entries = [
        {**_entry(feature, frames[each.entity]), **_entity(each)}
        for each in metadata.inputs
        if each.entity in frames
        for feature in each.features
        if _is_profiled(feature, each)
    ]
    return {"schema": SCHEMA, "features": entries}


def _entity(each: Input) -> dict[str, str]:
    return {} if each.entity == USER else {"entity": each.entity}


def _is_profiled(feature: Feature, each: Input) -> bool:
    single = feature.length is None and feature.hash_buckets is None and each.dtype != "string"
    return single and len(feature.vocabulary or ()) <= MOST_WORDS


def _entry(feature: Feature, frame: pd.DataFrame) -> dict[str, Any]:
    column = frame[feature.name] if feature.name in frame else pd.Series([None] * len(frame))
    present = column.dropna()
    whole = max(len(column), 1)
    # Nothing was there to be missing.
    missing = 1.0 - len(present) / whole if len(column) else 1.0
    entry = {"name": feature.name, "missing": missing}
    if feature.vocabulary is None:
        return entry | _numbers(present.to_numpy("float64"), whole)
    known = present[present.isin(feature.vocabulary)]
    entry["out_of_vocabulary"] = (len(present) - len(known)) / whole
    if isinstance(feature.vocabulary[0], str):
        return entry | _words(known, feature.vocabulary, whole)
    return entry | _numbers(known.to_numpy("float64"), whole)


def _words(known: pd.Series, words: tuple, whole: int) -> Mapping[str, Any]:
    counts = known.value_counts()
    return {"words": list(words), "shares": [int(counts.get(word, 0)) / whole for word in words]}


def _numbers(values: np.ndarray, whole: int) -> Mapping[str, Any]:
    """Bins with about as many values in each; a bin ends at its edge, inclusive."""
    quantiles = np.arange(1, BINS) / BINS
    # The tensor's float32 is what the server sees: no edge may fall between the two.
    values = values.astype("float32").astype("float64")
    edges = np.unique(np.quantile(values, quantiles, method="lower")) if len(values) else []
    counts = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
    return {"edges": list(map(float, edges)), "shares": [int(count) / whole for count in counts]}
