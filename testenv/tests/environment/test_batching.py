"""Stage 1, environment: an engine that batches requests gives each caller its own scores."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelBuilder
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.features import TREATMENT, TREATMENT_COUNT, USER, Input, numeric
from outrigger_testenv.processes import ProcessError
from outrigger_testenv.stack import library

CALLERS = 4
# A batch is run when every caller is in it, or after a quarter of a second.
PARAMETERS = f"""
max_batch_size {{ value: {CALLERS} }}
batch_timeout_micros {{ value: 250000 }}
max_enqueued_batches {{ value: 64 }}
num_batch_threads {{ value: 2 }}
pad_variable_length_inputs: true
"""
BATCHES = {
    "engine": {"batching": True, "max_batch_size": CALLERS},
    "server": {"max_users": CALLERS},
}
CLOSE = {"rtol": 1e-4, "atol": 1e-6}
# Requests of one user each, of different lengths.
LENGTHS = [1, 40, 7, 23, 2, 31, 5, 16]
USERS = [pd.DataFrame({"age": [20 + 5 * at]}) for at in range(len(LENGTHS))]
OFFERS = [pd.DataFrame({"price": np.linspace(0.5, 2 + at, T)}) for at, T in enumerate(LENGTHS)]


def share(user, offer):
    """Each treatment's share among those of its row of the tensor, padding included."""
    import tensorflow as tf

    return tf.nn.softmax(offer[:, :, 0] + 0.0 * user, axis=1)


def share_of_count(user, offer, count):
    """Each treatment's share among those of its user."""
    import tensorflow as tf

    logits = offer[:, :, 0] + 0.01 * user
    return tf.nn.softmax(tf.where(tf.sequence_mask(count, tf.shape(logits)[1]), logits, -1e9))


def fussy(user, offer):
    """The price, for users of an age below 100; it fails for others."""
    import tensorflow as tf

    is_known = tf.reduce_all(user < 100.0)
    with tf.control_dependencies([tf.debugging.Assert(is_known, ["too old"])]):
        return offer[:, :, 0] + 0.0 * user


def build(model, directory, *further):
    return ModelBuilder(
        [
            Input("user", USER, "float32", (numeric("age", default=30),)),
            Input("offer", TREATMENT, "float32", (numeric("price", required=True),)),
            *further,
        ]
    ).build(model, directory)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A model whose scores depend on the number of treatments, which it takes as an input."""
    count = Input("count", TREATMENT_COUNT, "int32")
    return build(share_of_count, tmp_path_factory.mktemp("counted"), count)


def together(stack, model, users=USERS):
    """The scores of all requests, or the reason of a failure, asked for by callers at a time."""
    clients = [stack.client() for _ in range(CALLERS)]
    barrier = Barrier(CALLERS)

    def ask(caller):
        results = {}
        for at in range(caller, len(LENGTHS), CALLERS):
            barrier.wait(timeout=30)
            try:
                scores = clients[caller].predict(model, users[at], OFFERS[at])["score"]
                results[at] = scores.to_numpy()
            except OutriggerError as error:
                results[at] = error.reason
        return results

    with ThreadPoolExecutor(CALLERS) as pool:
        parts = list(pool.map(ask, range(CALLERS)))
    return [next(part[at] for part in parts if at in part) for at in range(len(LENGTHS))]


def counted_scores(package):
    """TensorFlow's own scores of each request."""
    return [package.score(user, [offers])[0] for user, offers in zip(USERS, OFFERS, strict=True)]


def test_requests_in_a_batch_get_the_scores_that_they_get_alone(own_stack, counted):
    stack = own_stack(batching=PARAMETERS, overrides=BATCHES)
    stack.push(counted, "counted")
    alone = [
        stack.client().predict("counted", user, offers)["score"].to_numpy()
        for user, offers in zip(USERS, OFFERS, strict=True)
    ]
    for own, scores in zip(counted_scores(counted), alone, strict=True):
        np.testing.assert_allclose(scores, own, **CLOSE)
    for _ in range(5):
        for scores, own in zip(together(stack, "counted"), alone, strict=True):
            assert not isinstance(scores, str), scores
            np.testing.assert_allclose(scores, own, **CLOSE)


def retries(stack, outcome):
    """The number of retries with this outcome."""
    found = [
        value
        for name, value in stack.serve.metrics().items()
        if name.startswith("outrigger_engine_batch_retries_total")
        and f'outcome="{outcome}"' in name
    ]
    assert len(found) == 1, found
    return found[0]


def test_a_bad_request_fails_alone_if_the_others_in_its_batch_are_retried(own_stack, tmp_path):
    stack = own_stack(batching=PARAMETERS, overrides=BATCHES)
    package = build(fussy, tmp_path / "fussy")
    stack.push(package, "fussy")
    own = counted_scores(package)
    # One of the first four requests, which share a batch.
    bad = 2
    users = [*USERS[:bad], pd.DataFrame({"age": [100]}), *USERS[bad + 1 :]]
    # Ten calls permit one retry, which any of the four requests may get. The bad one fails again.
    for _ in range(40):
        for scores in together(stack, "fussy"):
            assert not isinstance(scores, str), scores
        before = retries(stack, "ok")
        results = together(stack, "fussy", users)
        retried = retries(stack, "ok") - before
        assert results[bad] == "REQUEST_MALFORMED"
        failed = [at for at in range(len(users)) if at != bad and isinstance(results[at], str)]
        assert len(failed) <= CALLERS - 1 - retried
        assert all(results[at] == "REQUEST_MALFORMED" for at in failed)
        for at in set(range(len(users))) - {bad, *failed}:
            np.testing.assert_allclose(results[at], own[at], **CLOSE)
        if retried:
            return
    pytest.fail("no good request was retried")


def test_wider_outputs_are_refused_if_the_control_plane_knows_of_no_batching(own_stack, counted):
    stack = own_stack(batching=PARAMETERS)
    stack.push(counted, "counted")
    assert len(stack.client().predict("counted", USERS[1], OFFERS[1])) == LENGTHS[1]

    def refused():
        return "SCORES_INVALID" in [
            result for result in together(stack, "counted") if isinstance(result, str)
        ]

    stack.client().wait_until(refused, what="no requests shared a batch")


def test_a_model_whose_scores_depend_on_padding_is_refused(own_stack, tmp_path):
    stack = own_stack(batching=PARAMETERS, overrides=BATCHES)
    stack.push(build(share, tmp_path / "share"), "share")
    with pytest.raises(OutriggerError, match="treatment_count") as caught:
        stack.client().predict("share", USERS[0], OFFERS[0])
    assert caught.value.reason == "GOLDEN_MISMATCH"


@pytest.mark.parametrize(
    ("model", "option", "code"),
    [
        ("share", "--batching", 1),
        ("share", None, 0),
        ("counted", "--batching", 0),
    ],
)
def test_the_command_finds_scores_that_depend_on_padding(counted, tmp_path, model, option, code):
    package = counted if model == "counted" else build(share, tmp_path / "share")
    done = subprocess.run(
        [outrigger(), "validate", package.directory, *([option] if option else [])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **library()},
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("GOLDEN_MISMATCH" in done.stdout) == (code == 1)


def test_a_batch_smaller_than_a_call_is_refused_at_the_start(own_stack):
    overrides = {"engine": {"batching": True, "max_batch_size": 63}}
    with pytest.raises(ProcessError, match=r"serve ended with 64(.|\n)*engine.max_batch_size"):
        own_stack(overrides=overrides)
