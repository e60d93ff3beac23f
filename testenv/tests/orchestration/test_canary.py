"""Canaries are promoted or rolled back by the control plane: one that is better, one that fails and
one that is slow, under load. The judge's tests have the others, in simulated time.
"""

import json
import time

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv.client import request, selector
from outrigger_testenv.load import Load
from outrigger_testenv.variants import better, good

MODEL = "canary/tiny"
TIMEOUT = 300.0

# The default margins and numbers of requests, without the ten minutes that a promotion waits for.
SETTINGS = {"minimum_time": "3s", "ramp": {"share": 0.5}}


def failing(user, offer):
    """Fails for users of an odd age; the first request has an even one."""
    import tensorflow as tf

    even = tf.equal(tf.math.floormod(user, 2.0), 0.0)
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(even), ["odd"])]):
        return tf.identity(good(user, offer))


def slow(user, offer):
    """The same scores after many layers of needless work."""
    import tensorflow as tf

    # The numbers depend on the input, so that TensorFlow cannot fold them into constants.
    rows = tf.tile(user, [1, 256]) + tf.reshape(tf.range(256.0), [1, 256])
    wide = tf.transpose(rows) @ rows
    for _ in range(60):
        wide = tf.sin(wide @ wide)
    return good(user, offer) + 1e-9 * tf.reduce_mean(wide)


@pytest.fixture
def stack(needs_registry, own_stack, package):
    """A stack that serves the good model."""
    stack = own_stack(overrides={"canary": {"defaults": SETTINGS}})
    stack.live = stack.push(package(good), MODEL)
    stack.client().load(MODEL)
    return stack


def requests():
    """Requests of many users without a routing key, so that each request counts."""
    draw = np.random.default_rng(1)
    for age in draw.integers(18, 80, 500):
        offers = pd.DataFrame({"price": draw.normal(0, 3, 5).astype("float32")})
        message = request({"age": int(age)}, offers)
        message.model.CopyFrom(selector(MODEL))
        yield message


def canary(stack, *arguments):
    """Runs `outrigger canary …` on the stack's server."""
    done = stack.serve.run("canary", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def status(stack):
    """The canaries on trial and the decisions."""
    return json.loads(canary(stack, "status", MODEL, "-o", "json"))


def wait_for(stack, what, condition):
    """Waits until the status satisfies the condition, and returns it."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        found = status(stack)
        if condition(found):
            return found
        time.sleep(0.2)
    raise TimeoutError(f"not {what} within {TIMEOUT} s: {json.dumps(found, indent=1)}")


def decided(found):
    return bool(found.get("decisions"))


def in_split(found):
    return any(each["phase"] == "PHASE_SPLIT" for each in found.get("canaries", []))


def tried_under_load(stack, package, directory):
    """Pushes a canary under load, and waits for the decision and some more requests. Returns its
    digest, the decision, and the report of the load.
    """
    with Load(stack.serve.target, requests(), directory) as load:
        load.wait_for(stack.live)
        digest = stack.push(package, MODEL, "latest_canary")
        found = wait_for(stack, "decided", decided)
        load.wait_until(load.answered + 2000)
        return digest, found["decisions"][0], load.stop()


@pytest.mark.parametrize("bad", [failing, slow])
def test_a_bad_canary_is_rolled_back_and_no_request_fails(stack, package, tmp_path, capsys, bad):
    digest, decision, report = tried_under_load(stack, package(bad), tmp_path)
    with capsys.disabled():
        print(f"\n  {bad.__name__}: {decision['verdict']['canary_requests']} requests; {report}")
        print(f"  {decision['reason']}")
    assert decision["outcome"] == "OUTCOME_ROLLED_BACK"
    assert (decision["canary_digest"], decision["by"]) == (digest, "judge")
    assert decision["reason"].startswith("rollback: latency ") == (bad is slow)
    assert report.failed == 0, report.first_errors
    assert stack.registry.digest(f"models/{MODEL}", "latest") == stack.live
    after = wait_for(stack, "rejected", lambda found: not in_split(found))
    assert after["canaries"][0]["phase"] == "PHASE_REJECTED"


def test_a_good_canary_is_promoted_and_no_request_fails(stack, package, tmp_path, capsys):
    digest, decision, report = tried_under_load(stack, package(better), tmp_path)
    with capsys.disabled():
        print(f"\n  better: {decision['verdict']['canary_requests']} requests; {report}")
        print(f"  {decision['reason']}")
    assert decision["outcome"] == "OUTCOME_PROMOTED"
    assert report.failed == 0, report.first_errors
    assert set(report.digests) == {stack.live, digest}
    assert stack.registry.digest(f"models/{MODEL}", "latest") == digest
    assert "canaries" not in status(stack), "a canary that is live is none"


USERS = pd.DataFrame({"age": range(20, 60)}, index=[f"user-{number}" for number in range(40)])
OFFERS = pd.DataFrame({"price": np.float32([1, 2])}, index=["a", "b"])


def served_by(frame):
    """The digest that answered each user of a frame of scores."""
    digests = frame.groupby("user")["digest"].agg(set)
    assert all(len(each) == 1 for each in digests)
    return {user: digest.pop() for user, digest in digests.items()}


def test_users_keep_their_arms_in_batches_of_any_users(stack, package, tmp_path):
    labels = {"dev.outrigger.canary": json.dumps({"minimum_time": "3600s"})}
    with Load(stack.serve.target, requests(), tmp_path):
        canary = stack.push(package(better), MODEL, "latest_canary", labels)
        wait_for(stack, "split", in_split)
    client = stack.client()
    arms = served_by(client.predict(MODEL, USERS, OFFERS))
    assert set(arms.values()) == {stack.live, canary}
    shuffled = USERS.sample(frac=1, random_state=1)
    assert served_by(client.predict(MODEL, shuffled, OFFERS, users_per_call=7)) == arms
    for user, age in USERS["age"].items():
        alone = request({"age": age}, OFFERS, key=user)
        alone.model.CopyFrom(selector(MODEL))
        assert client.call(alone).model.digest == arms[user]
    for user, scores in client.predict(MODEL, USERS, OFFERS).groupby("user"):
        variant = good if arms[user] == stack.live else better
        expected = variant(np.float32([USERS["age"][user]]), OFFERS.to_numpy()[None]).numpy()
        np.testing.assert_allclose(scores["score"], expected.ravel(), rtol=1e-5)


def test_a_trial_survives_a_restart_and_is_ended_by_hand(stack, package, tmp_path):
    patient = json.dumps({"minimum_time": "3600s"})
    labels = {"dev.outrigger.canary": patient}
    stack.push(package(better), MODEL, "latest_canary", labels)
    with Load(stack.serve.target, requests(), tmp_path):
        seen = wait_for(stack, "split", lambda found: canary_requests(found) > 100)
    stack.serve.process.stop()
    stack.serve.start()
    # No requests are sent any more, so these were counted before the restart.
    after = wait_for(stack, "split again", lambda found: canary_requests(found) > 0)
    assert canary_requests(after) >= canary_requests(seen)
    canary(stack, "abort", MODEL, "--by", "ada", "--reason", "a hunch")
    decision = wait_for(stack, "decided", decided)["decisions"][0]
    assert decision["outcome"] == "OUTCOME_ROLLED_BACK"
    assert (decision["by"], decision["reason"]) == ("ada", "a hunch")


def canary_requests(found):
    """The number of requests that the canary has served; 0 before the split."""
    verdicts = (each.get("verdict", {}) for each in found.get("canaries", []))
    return sum(int(each.get("canary_requests", 0)) for each in verdicts)


def test_a_canary_rolled_back_by_one_pod_is_rejected_by_the_others(stack, own_stack, package):
    images = {key: stack.serve.config["images"][key] for key in ("repository", "allowed")}
    images["plain_http"] = [stack.registry.host]
    overrides = {"canary": {"defaults": SETTINGS}, "images": images}
    other = own_stack(overrides=overrides, with_registry=False)
    other.client().load(MODEL)
    digest = stack.push(package(better), MODEL, "latest_canary")
    for each in (stack, other):
        wait_for(each, "on trial", warming_up)
    canary(stack, "abort", MODEL, "--by", "ada", "--reason", "a hunch")
    decision = wait_for(other, "decided", decided)["decisions"][0]
    assert decision["outcome"] == "OUTCOME_ROLLED_BACK"
    assert (decision["canary_digest"], decision["by"]) == (digest, "registry")
    assert decision["reason"] == "rolled back elsewhere by ada: a hunch"
    assert stack.registry.digest(f"models/{MODEL}", "latest") == stack.live


def warming_up(found):
    return any(each["phase"] == "PHASE_WARMING_UP" for each in found.get("canaries", []))
