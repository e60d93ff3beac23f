"""Repeated measurements and their spread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Order statistics of samples; quartiles are interpolated between samples."""

    min: float
    lower_quartile: float
    median: float
    upper_quartile: float
    max: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Spread":
        """The spread of the samples, of which there must be at least one."""
        if not samples:
            raise ValueError("no samples")
        return cls(*(float(value) for value in np.quantile(samples, [0, 0.25, 0.5, 0.75, 1])))


def in_turns(repeats: int, *sides: Callable[[], Any]) -> list[tuple[Any, ...]]:
    """Runs all sides `repeats` times; returns their results for each turn, in the order of the
    arguments.

    In every other turn the order is reversed. Otherwise a machine that slows down during the
    measurement would disadvantage the same side each time.
    """
    rounds = []
    for repeat in range(repeats):
        order = range(len(sides)) if repeat % 2 == 0 else reversed(range(len(sides)))
        given = {at: sides[at]() for at in order}
        rounds.append(tuple(given[at] for at in range(len(sides))))
    return rounds
