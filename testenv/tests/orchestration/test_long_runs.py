"""A model with an input whose run has no end, beside another model."""

import pandas as pd
import pytest

from outrigger_testenv import slow, variants
from outrigger_testenv.slow import flooded

SLOW, NEIGHBOUR = "slow", "neighbour"
OFFERS = pd.DataFrame({"price": [1.0, 2.0]})
SECONDS = 10.0


@pytest.fixture
def stack(own_stack, tmp_path):
    """A stack that serves both."""
    stack = own_stack()
    stack.push(slow.at_a_call(tmp_path / "slow", tmp_path / "pipe"), SLOW)
    stack.push(variants.tiny(tmp_path / "neighbour", 7), NEIGHBOUR)
    return stack


def call(stack, name, deadline):
    users = pd.DataFrame({"age": [30.0]})
    return stack.client().predict(name, users, OFFERS, timeout=deadline)


# At the beginning the engine takes its runs for long ones, and after some for short ones.
@pytest.mark.parametrize("runs", [1, 50])
def test_other_models_answer_beside_an_input_whose_run_has_no_end(stack, tmp_path, runs):
    for name in (SLOW, NEIGHBOUR):
        for _ in range(runs):
            call(stack, name, 30.0)
    answered = 0
    with flooded(stack.serve.target, SLOW, SECONDS, tmp_path / "pipe") as flood:
        while flood.is_alive():
            call(stack, NEIGHBOUR, 2.0)
            answered += 1
    assert answered > 20
    print(f"\n  {answered} answers of the neighbour in {SECONDS:g} s")
