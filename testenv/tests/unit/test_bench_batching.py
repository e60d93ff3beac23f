"""The figure of batching: its scores and its effort."""

import numpy as np
import pytest

from outrigger_testenv.bench import batching
from outrigger_testenv.bench.figure import FULL, Effort, Failed


def test_scores_with_batching_must_be_those_without():
    scores = np.array([[0.5], [-2.0]])
    batching.check(scores, scores * 1.0009)
    for other in (scores * 1.002, -scores, scores * np.nan):
        with pytest.raises(Failed, match="scores differ"):
            batching.check(scores, other)


def test_a_few_turns_are_enough():
    assert batching.turns(FULL) == Effort(repeats=3, warmup=1, measured=4, held=60)
    short = Effort(repeats=1, warmup=0, measured=1, held=1)
    assert batching.turns(short) == short
