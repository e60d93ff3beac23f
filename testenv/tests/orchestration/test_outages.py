"""Recovery from failures of each part, without manual work."""

import time
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.load import Load
from outrigger_testenv.outage import assert_is_away

USERS = pd.DataFrame({"age": [30]})
OFFERS = pd.DataFrame({"price": [1.0, 2.0]})


def score(client, model, **options):
    return float(client.predict(model, USERS, OFFERS, **options)["score"].iloc[0])


@pytest.fixture
def stack(own_stack, tiny):
    """A stack that serves "steady", whose score is 1."""
    stack = own_stack()
    stack.push(tiny(1), "steady")
    assert score(stack.client(), "steady") == 1
    return stack


def probes():
    message = request({"age": 30}, OFFERS)
    message.model.CopyFrom(selector("steady"))
    return [message]


def test_requests_wait_within_their_deadlines_for_an_engine_that_was_killed(
    stack, tmp_path, capsys
):
    client = stack.client()
    digest = client.serving_digest("steady")
    expected = {digest: 1.0}
    with Load(stack.serve.target, probes(), tmp_path, 2, expected, deadline=10.0) as load:
        load.wait_for(digest)
        stack.engine.process.kill()
        with ThreadPoolExecutor() as pool:
            # Some are sent before the end of the engine is noticed, some after.
            patient = [pool.submit(score, stack.client(), "steady", timeout=10) for _ in range(8)]
            with pytest.raises(OutriggerError) as caught:
                score(client, "steady", timeout=0.5)
            stack.engine.start()
            assert [each.result() for each in patient] == [1.0] * 8
        report = load.stop()
    with capsys.disabled():
        print(f"\n  engine killed and restarted: {report}")
    assert caught.value.reason == "ENGINE_UNAVAILABLE"
    assert (report.failed, report.wrong) == (0, 0), report.first_errors


def test_the_engine_may_come_last(own_stack, tiny):
    stack = own_stack(start=False)
    if stack.registry:
        stack.registry.start()
    stack.push(tiny(1), "late")
    stack.serve.start(wait=False)
    with pytest.raises(OutriggerError):
        score(stack.client(), "late", timeout=2)
    stack.engine.start()
    client = stack.client()
    client.wait_until(lambda: score(client, "late") == 1)


def test_an_engine_that_hangs_does_not_hang_the_control_plane(stack):
    client = stack.client()
    stack.engine.process.pause()
    try:
        with pytest.raises(OutriggerError) as caught:
            score(client, "steady", timeout=1)
        assert (
            caught.value.reason in ("DEADLINE", "") or caught.value.code.name == "DEADLINE_EXCEEDED"
        )
        assert stack.serve.get("/healthz")[0] == 200
        assert "steady" in client.models()
    finally:
        stack.engine.process.resume()
    client.wait_until(lambda: score(client, "steady", timeout=2) == 1)


@pytest.mark.usefixtures("needs_registry")
def test_a_registry_that_is_down_stops_no_model_that_is_here(stack, tiny):
    client = stack.client()
    stack.push(tiny(2), "later")
    stack.registry.stop()
    assert score(client, "steady") == 1
    with pytest.raises(OutriggerError) as caught:
        score(client, "later", timeout=3)
    assert caught.value.reason in ("REGISTRY_UNAVAILABLE", "MODEL_LOADING")
    assert stack.serve.get("/healthz")[0] == 200
    assert score(client, "steady") == 1
    stack.registry.start()
    client.wait_until(lambda: score(client, "later") == 2)


@pytest.mark.usefixtures("needs_registry")
def test_a_tag_that_moved_during_the_outage_is_followed_afterwards(stack, tiny):
    client = stack.client()
    first = client.serving_digest("steady")
    second = stack.push(tiny(2), "steady", "next")
    stack.registry.stop()
    assert score(client, "steady") == 1
    stack.registry.start()
    stack.registry.tag("models/steady", second, "latest")
    client.wait_until_serving("steady", second)
    assert first != second
    assert score(client, "steady") == 2


@pytest.mark.usefixtures("needs_registry")
def test_a_restart_without_the_registry_serves_the_last_known_good(stack):
    stack.registry.stop()
    stack.serve.process.stop()
    stack.serve.start(wait=False)
    client = stack.client()
    client.wait_until(lambda: score(client, "steady") == 1)


def test_a_control_plane_that_was_killed_takes_up_where_it_was(stack):
    stack.serve.process.kill()
    stack.serve.start(wait=False)
    client = stack.client()
    client.wait_until(lambda: score(client, "steady") == 1)


@pytest.mark.usefixtures("needs_registry")
@pytest.mark.parametrize("scored", [2, 3, 4])
def test_what_has_answered_once_answers_after_a_kill(stack, tiny, scored):
    client = stack.client()
    stack.push(tiny(scored), "steady")
    deadline = time.monotonic() + 60
    while score(client, "steady") != scored:
        assert time.monotonic() < deadline, "the new version does not answer"
    stack.serve.process.kill()
    stack.registry.stop()
    stack.serve.start(wait=False)
    client = stack.client()
    client.wait_until(lambda: score(client, "steady"), what="nothing is served")
    assert score(client, "steady") == scored


def test_a_stop_lets_requests_in_flight_finish(stack):
    stack.engine.process.pause()
    with ThreadPoolExecutor() as pool:
        in_flight = pool.submit(score, stack.client(), "steady")
        series = 'outrigger_requests_in_flight{method="batch_predict"}'
        stack.client().wait_until(lambda: stack.serve.metrics()[series] == 1, 10)
        stopped = pool.submit(stack.serve.process.stop)
        # From here on the control plane takes no other requests.
        stack.client().wait_until(lambda: stack.serve.get("/readyz")[0] != 200)
        assert not in_flight.done()
        stack.engine.process.resume()
        assert in_flight.result() == 1
        assert stopped.result() == 0


@pytest.mark.parametrize(("end", "back"), [("kill", "start"), ("pause", "resume")])
def test_requests_to_an_engine_that_stays_away_get_the_reason_long_before_their_deadlines(
    stack, end, back
):
    client = stack.client()
    getattr(stack.engine.process, end)()
    try:
        assert_is_away(lambda: score(client, "steady", timeout=30))
    finally:
        getattr(stack.engine.process, back)()
    client.wait_until(lambda: score(client, "steady", timeout=5) == 1)
