"""profile.json: the distribution of a model's features at training.

The server compares the features of requests with it (docs/model-package.md).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.features import TREATMENT, USER, Feature, Input, Metadata

SCHEMA = "outrigger.dev/profile/v1"

# The most bins of a number, and words of a vocabulary.
BINS = 10
MOST_WORDS = 100


def profile(metadata: Metadata, users: pd.DataFrame, treatments: pd.DataFrame) -> dict[str, Any]:
    """Computes profile.json from one row per user and one per treatment.

    A missing column counts as absent in every row. Vectors, texts, hashed words and vocabularies of
    more than 100 words are left out.
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
    # Without rows, the feature counts as always missing.
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
    """Bins with about equal numbers of values; a bin includes its upper edge."""
    quantiles = np.arange(1, BINS) / BINS
    # The server sees the tensor's float32, so edges are computed from float32 values.
    values = values.astype("float32").astype("float64")
    edges = np.unique(np.quantile(values, quantiles, method="lower")) if len(values) else []
    counts = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
    return {"edges": list(map(float, edges)), "shares": [int(count) / whole for count in counts]}
