"""A canary that costs much of the engine does not make live's callers fail."""

import pytest

from outrigger_testenv.overload import SCENARIOS, costly, loops_of, run, settings
from outrigger_testenv.variants import good, tiny_builder

MODEL = "overload/tiny"


@pytest.fixture
def stack(needs_registry, own_stack, package, scenario):
    """A stack that serves the good model, and tries canaries with the scenario's share."""
    stack = own_stack(overrides={"canary": {"defaults": settings(scenario)}})
    stack.live = stack.push(package(good), MODEL)
    stack.client().load(MODEL)
    return stack


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_costly_canary_is_rolled_back(stack, tmp_path, capsys, scenario):
    canary = tiny_builder().build(costly(loops_of(scenario.cost)), tmp_path / "canary")
    course = run(stack, MODEL, canary, scenario, tmp_path)
    with capsys.disabled():
        print(f"\n  {scenario}: {course}")
    assert course.outcome == "OUTCOME_ROLLED_BACK"
    assert "overload: " in course.reason
    assert course.failed <= 0.001 * course.callers
    assert stack.registry.digest(f"models/{MODEL}", "latest") == stack.live
    left = stack.serve.metrics()[f'outrigger_canary_left_to_live_total{{model="{MODEL}"}}']
    assert left > 0, "the canary has more requests than its share of the engine can answer"
