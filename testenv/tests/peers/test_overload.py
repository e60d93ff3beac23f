"""No caller fails while there is more to do than at other times: beside a costly canary, with more
requests in flight than a model may have, and during a restart of the control plane.
"""

import pytest

from outrigger_testenv.load import Load
from outrigger_testenv.overload import SCENARIOS, costly, loops_of, messages, run, settings
from outrigger_testenv.variants import good, tiny_builder

MODEL = "overload/tiny"
# More requests in flight than one model may have, each of which waits for so many seconds.
IN_FLIGHT = 1200
DEADLINE = 10.0
ANSWERS = 6000


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


def test_callers_beyond_the_limit_of_a_model_wait_and_none_fails(
    own_stack, package, tmp_path, capsys
):
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    names = [f"caller-{at}" for at in range(32)]
    for name in names:
        (tokens / name).write_text(f"the-token-of-{name}\n")
    access = {"tokens": str(tokens), "anonymous": ["predict", "read", "change"]}
    access["callers"] = {"*": ["predict"]}
    stack = own_stack(overrides={"auth": access})
    stack.push(package(good), MODEL)
    stack.client().load(MODEL)

    def send(callers):
        used = [f"the-token-of-{name}" for name in names[:callers]]
        load = Load(
            stack.serve.target,
            messages(MODEL),
            tmp_path,
            IN_FLIGHT,
            deadline=DEADLINE,
            tokens=used,
        )
        with load:
            load.wait_until(ANSWERS)
            report = load.stop()
        with capsys.disabled():
            print(f"\n  {callers} callers: {report.requests / report.seconds:.0f}/s; {report}")
        assert report.failed == 0, report.errors

    for callers in (1, 3, 32):
        send(callers)


def test_a_restart_of_the_control_plane_refuses_none_of_those_who_wait(
    own_stack, package, tmp_path, capsys
):
    stack = own_stack()
    digest = stack.push(package(good), MODEL)
    stack.client().load(MODEL)
    load = Load(
        stack.serve.target, messages(MODEL), tmp_path, patient=True, deadline=20.0, rate=200.0
    )
    with load:
        load.wait_for(digest)
        for _ in range(3):
            load.wait_until(load.answered + 1000)
            stack.serve.process.kill()
            # The engine has lost the model too, so that it has to be loaded again.
            stack.engine.process.kill()
            stack.serve.start(wait=False)
            stack.engine.start()
        load.wait_until(load.answered + 2000)
        report = load.stop()
    with capsys.disabled():
        print(f"\n  three restarts: {report}; repeated: {dict(report.repeated)}")
    assert report.failed == 0, report.errors
