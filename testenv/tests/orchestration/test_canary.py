"""Canaries are promoted or rolled back by the control plane."""

import json
import time

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv.client import request, selector
from outrigger_testenv.load import Load
from outrigger_testenv.variants import better, constant, good

MODEL = "canary/tiny"
TIMEOUT = 120.0

# Settings for a decision within seconds. The machine may be busy, so latency must differ by far to
# count.
QUICK = {
    "minimum_time": "3s",
    "minimum_requests": 200,
    "warm_up": {"requests": 200},
    "ramp": {"share": 0.3},
    "signals": {
        "error_rate": {"margin": 0.05},
        "non_finite": {"limits": {"margin": 0.05}},
        "score_drift": {"margin": 0.2},
        "latency": {"limits": {"tolerance": 1.0, "margin": 9.0}},
    },
}


def not_a_number(user, offer):
    """Gives NaN for users of an odd age; the first request has an even one."""
    import tensorflow as tf

    odd = tf.equal(tf.math.floormod(user, 2.0), 1.0)
    return tf.where(odd, tf.constant(np.nan, tf.float32), good(user, offer))


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
    stack = own_stack(overrides={"canary": {"defaults": QUICK}})
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


def tried_under_load(stack, package, directory, settings=None):
    """Pushes a canary under load, and waits for the decision and some more requests. Returns its
    digest, the decision, and the report of the load.
    """
    labels = {"dev.outrigger.canary": json.dumps(settings or {})}
    with Load(stack.serve.target, requests(), directory) as load:
        load.wait_for(stack.live)
        digest = stack.push(package, MODEL, "latest_canary", labels)
        found = wait_for(stack, "decided", decided)
        load.wait_until(load.answered + 2000)
        return digest, found["decisions"][0], load.stop()


@pytest.mark.parametrize("bad", [constant, not_a_number, failing])
def test_a_bad_canary_is_rolled_back_and_no_request_fails(stack, package, tmp_path, capsys, bad):
    digest, decision, report = tried_under_load(stack, package(bad), tmp_path)
    with capsys.disabled():
        print(f"\n  {bad.__name__}: {decision['verdict']['canary_requests']} requests; {report}")
        print(f"  {decision['reason']}")
    assert decision["outcome"] == "OUTCOME_ROLLED_BACK"
    assert (decision["canary_digest"], decision["by"]) == (digest, "judge")
    assert report.failed == 0, report.first_errors
    assert stack.registry.digest(f"models/{MODEL}", "latest") == stack.live
    after = wait_for(stack, "rejected", lambda found: not in_split(found))
    assert after["canaries"][0]["phase"] == "PHASE_REJECTED"


def test_a_merely_slow_canary_is_rolled_back_and_no_request_fails(stack, package, tmp_path, capsys):
    sooner = {"signals": {"latency": {"limits": {"tolerance": 0.5, "margin": 1.0}}}}
    _, decision, report = tried_under_load(stack, package(slow), tmp_path, sooner)
    with capsys.disabled():
        print(f"\n  slow: {decision['verdict']['canary_requests']} requests; {report}")
        print(f"  {decision['reason']}")
    assert decision["outcome"] == "OUTCOME_ROLLED_BACK"
    assert decision["reason"].startswith("rollback: latency ")
    assert report.failed == 0, report.first_errors
    assert stack.registry.digest(f"models/{MODEL}", "latest") == stack.live


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


def test_a_label_that_cannot_be_used_refuses_the_canary(stack, package):
    labels = {"dev.outrigger.canary": '{"confidence": 7}'}
    stack.push(package(better), MODEL, "latest_canary", labels)
    decision = wait_for(stack, "decided", decided)["decisions"][0]
    assert decision["outcome"] == "OUTCOME_REFUSED"
    assert "CANARY_INVALID" in decision["reason"] and "confidence" in decision["reason"]
    assert status(stack)["canaries"][0]["phase"] == "PHASE_REJECTED"


def test_a_canary_rolled_back_by_one_pod_is_rejected_by_the_others(stack, own_stack, package):
    images = {key: stack.serve.config["images"][key] for key in ("repository", "allowed")}
    images["plain_http"] = [stack.registry.host]
    overrides = {"canary": {"defaults": QUICK}, "images": images}
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


def test_a_canary_whose_tag_is_removed_is_tried_no_more(stack, package, tmp_path):
    labels = {"dev.outrigger.canary": json.dumps({"minimum_time": "3600s"})}
    with Load(stack.serve.target, requests(), tmp_path) as load:
        digest = stack.push(package(better), MODEL, "latest_canary", labels)
        wait_for(stack, "split", lambda found: canary_requests(found) > 100)
        stack.registry.remove_tag(f"models/{MODEL}", "latest_canary")
        decision = wait_for(stack, "decided", decided)["decisions"][0]
        load.wait_until(load.answered + 1000)
        report = load.stop()
    assert decision["outcome"] == "OUTCOME_SUPERSEDED"
    assert (decision["canary_digest"], decision["by"]) == (digest, "registry")
    assert decision["reason"] == "the canary's tag was removed"
    assert report.failed == 0, report.first_errors
    assert "canaries" not in status(stack)
    # Pushed again, the canary has a new trial.
    stack.registry.tag(f"models/{MODEL}", digest, "latest_canary")
    wait_for(stack, "on trial", warming_up)


def warming_up(found):
    return any(each["phase"] == "PHASE_WARMING_UP" for each in found.get("canaries", []))
