"""Random users and treatments that fit a metadata.json."""

import string

import numpy as np
import pandas as pd

from outrigger_testenv.features import Feature, Input, Metadata
from outrigger_testenv.sparse import Sparse


def sample(
    metadata: Metadata, entity: str, rows: int, seed: int = 1, absent: float = 0.2
) -> pd.DataFrame:
    """Rows with every feature of the entity; optional features are sometimes absent."""
    draw = np.random.default_rng(seed)
    columns = {
        feature.name: _column(each, feature, rows, draw, absent)
        for each in metadata.inputs
        if each.entity == entity
        for feature in each.features
    }
    frame = pd.DataFrame(columns, index=range(rows))
    return frame.set_axis([f"{entity}-{at}" for at in range(rows)])


def _column(
    each: Input, feature: Feature, rows: int, draw: np.random.Generator, absent: float
) -> pd.Series:
    values = []
    for _ in range(rows):
        if not feature.required and draw.random() < absent:
            values.append(None)
        elif feature.id is not None:
            values.append(float(draw.normal()))
        elif each.weights is not None:
            values.append(_sparse(feature, draw))
        elif feature.max is not None:
            length = draw.integers(feature.max + 1)
            values.append([_value(each, feature, draw) for _ in range(length)])
        elif feature.length is None:
            values.append(_value(each, feature, draw))
        else:
            values.append([_value(each, feature, draw) for _ in range(feature.length)])
    return pd.Series(values, dtype=object)


def _sparse(feature: Feature, draw: np.random.Generator) -> Sparse:
    count = int(draw.integers(int(feature.max or 0) + 1))
    weights = draw.normal(size=count).astype(np.float32).tolist()
    if feature.vocabulary is None:
        return Sparse(
            ids=draw.integers(2**64, size=count, dtype=np.uint64).tolist(), weights=weights
        )
    words = [*feature.vocabulary, "unknown"]
    return Sparse(names=[words[draw.integers(len(words))] for _ in range(count)], weights=weights)


def _value(each: Input, feature: Feature, draw: np.random.Generator):
    if feature.vocabulary is not None:
        words = [*feature.vocabulary, _unknown(feature)]
        return words[draw.integers(len(words))]
    if feature.hash_buckets is not None or each.dtype == "string":
        letters = list(string.ascii_letters + "äß語 ")
        return "".join(draw.choice(letters, draw.integers(0, 40)))
    if each.dtype == "bool":
        return bool(draw.integers(2))
    if each.dtype.startswith("int"):
        return int(draw.integers(-1000, 1000))
    return float(draw.normal())


def _unknown(feature: Feature):
    if isinstance(feature.vocabulary[0], int):
        return max(feature.vocabulary) + 1
    return "".join(feature.vocabulary) + "?"
