"""Repeated measurements, and how far they lie apart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Order statistics; quartiles between two samples are interpolated."""

    min: float
    lower_quartile: float
    median: float
    upper_quartile: float
    max: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Spread":
        """Of at least one sample."""
        if not samples:
            raise ValueError("no samples")
        return cls(*(float(value) for value in np.quantile(samples, [0, 0.25, 0.5, 0.75, 1])))


def in_turns(repeats: int, *sides: Callable[[], Any]) -> list[tuple[Any, ...]]:
    """Runs all sides so many times; what they gave, in the order of the arguments.

    Every other time the last side goes first: a machine that gets slower as it is
    measured would else be held against the same side each time.
    """
    rounds = []
    for repeat in range(repeats):
        order = range(len(sides)) if repeat % 2 == 0 else reversed(range(len(sides)))
        given = {at: sides[at]() for at in order}
        rounds.append(tuple(given[at] for at in range(len(sides))))
    return rounds
