"""Models are loaded and unloaded: on demand, preloaded, idle, slow."""

import time

import pandas as pd
import pytest

from outrigger.v1 import model_pb2
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.slow import slow

USERS = pd.DataFrame({"age": [30]})
OFFERS = pd.DataFrame({"price": [1.0]})
State = model_pb2.ModelVersion.State

SLOW_SECONDS = 60


def state(client, model, digest):
    versions = {each.digest: each.state for each in client.model(model).versions}
    return versions.get(digest, State.STATE_NEW)


def score(client, model, **selected):
    return float(client.predict(model, USERS, OFFERS, **selected)["score"].iloc[0])


def test_a_model_is_loaded_by_the_first_request_for_it(stack, client, tiny):
    stack.push(tiny(4), "lifecycle/on-demand")
    assert score(client, "lifecycle/on-demand") == 4


def test_a_model_that_is_on_its_way_says_when_to_come_back(stack, client, tmp_path):
    stack.push(slow(tmp_path, 4), "lifecycle/patience")
    with pytest.raises(OutriggerError) as caught:
        client.predict("lifecycle/patience", USERS, OFFERS, timeout=1)
    assert caught.value.reason == "MODEL_LOADING"
    assert caught.value.retry_after > 0
    assert score(client, "lifecycle/patience") == 3


def early(stack, package):
    """Starts a stack whose registry has "early" from the start."""
    if stack.registry:
        stack.registry.start()
    digest = stack.push(package, "early")
    stack.engine.start()
    stack.serve.start()
    return digest


def test_preloaded_models_are_up_when_the_server_is_ready(own_stack, tiny):
    stack = own_stack(models=[{"name": "early", "preload": True}], start=False)
    digest = early(stack, tiny(5))
    assert stack.client().serving_digest("early") == digest


def test_an_idle_version_leaves_the_engine_then_the_disk_and_comes_back(own_stack, tiny):
    stack = own_stack(overrides={"store": {"idle_ttl": "4s", "retain": "8s"}})
    client = stack.client()
    digest = stack.push(tiny(6), "idle")
    # Requested by digest, because a version that serves a followed tag is never idle.
    assert score(client, "idle", digest=digest) == 6
    client.wait_until(lambda: state(client, "idle", digest) == State.STATE_DOWNLOADED)
    assert score(client, "idle", digest=digest) == 6
    trees = stack.directory / "store" / "trees"
    assert len(list(trees.iterdir())) == 1
    client.wait_until(lambda: not list(trees.iterdir()), what="the tree is still on disk")
    assert score(client, "idle", digest=digest) == 6


def test_a_preloaded_model_is_never_idle(own_stack, tiny):
    stack = own_stack(
        overrides={"store": {"idle_ttl": "4s", "retain": "4s"}},
        models=[{"name": "early", "preload": True}],
        start=False,
    )
    digest, other = early(stack, tiny(6)), stack.push(tiny(7), "other")
    client = stack.client()
    assert score(client, "other", digest=other) == 7
    client.wait_until(lambda: state(client, "other", other) != State.STATE_AVAILABLE)
    assert state(client, "early", digest) == State.STATE_AVAILABLE


def test_one_slow_model_delays_no_other(stack, client, tiny, tmp_path, capsys):
    slow_digest = stack.push(slow(tmp_path / "slow", SLOW_SECONDS), "lifecycle/slow")
    with pytest.raises(OutriggerError):
        client.predict("lifecycle/slow", USERS, OFFERS, timeout=1)
    took = []
    for at in range(3):
        stack.push(tiny(20 + at), f"lifecycle/quick-{at}")
        start = time.monotonic()
        assert score(client, f"lifecycle/quick-{at}") == 20 + at
        took.append(time.monotonic() - start)
    # A new version of a known name is not delayed either.
    moved = stack.push(tiny(30), "lifecycle/quick-0")
    client.wait_until_serving("lifecycle/quick-0", moved)
    assert state(client, "lifecycle/slow", slow_digest) != State.STATE_AVAILABLE, (
        "too quick to tell"
    )
    with capsys.disabled():
        times = ", ".join(f"{seconds:.1f} s" for seconds in took)
        print(f"\n  beside a load of {SLOW_SECONDS} s, other models took {times}")
    assert score(client, "lifecycle/slow", timeout=2 * SLOW_SECONDS) == 3
