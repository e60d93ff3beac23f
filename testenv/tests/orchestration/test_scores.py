"""Stage 2: models deployed from images give TensorFlow's scores."""

import json
import urllib.request

import numpy as np
import pandas as pd
import pytest

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv import requests
from outrigger_testenv.builder import ModelBuilder
from outrigger_testenv.client import request, selector
from outrigger_testenv.features import SEED, TREATMENT, USER, Input, numeric
from outrigger_testenv.jsonform import http_request
from outrigger_testenv.packing import pack
from outrigger_testenv.reference import reference_frames
from outrigger_testenv.samples import sample

FORMS = [requests.TABLE, requests.KEY_VALUE]
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture(scope="module")
def reference_digest(serving, reference):
    return serving(reference, "scores/reference")


@pytest.fixture(scope="module")
def kitchen_digest(serving, kitchen):
    return serving(kitchen, "scores/kitchen")


@pytest.mark.parametrize("form", FORMS)
def test_one_call_gives_the_bits_that_tensorflow_gives(client, reference, reference_digest, form):
    users, treatments = reference_frames(1, 1000)
    message = request(next(requests.rows(users)), treatments, form)
    message.model.CopyFrom(selector("scores/reference"))
    served = np.array(client.call(message).scores.values, "f4")
    own = reference.score(users, treatments)[0]
    assert served.tobytes() == own.tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_frames_of_many_users_give_tensorflows_scores(client, reference, reference_digest, form):
    users, treatments = reference_frames(40, 50)
    scores = client.predict("scores/reference", users, treatments, form=form)
    assert len(scores) == 2000
    assert set(scores["digest"]) == {reference_digest}
    np.testing.assert_allclose(
        scores["score"], np.concatenate(reference.score(users, treatments)), **CLOSE
    )


def test_every_output_and_the_padding_are_tensorflows(client, kitchen, kitchen_digest):
    users = sample(kitchen.metadata, USER, 5)
    offers = [sample(kitchen.metadata, TREATMENT, rows, seed=rows) for rows in (3, 1, 7, 2, 5)]
    batch = next(client.encode(users, offers, form=requests.KEY_VALUE))
    batch.model.CopyFrom(selector("scores/kitchen"))
    responses = client.call_batch(batch).responses
    own = kitchen.run(pack(kitchen.metadata, users, offers))
    for at, (response, frame) in enumerate(zip(responses, offers, strict=True)):
        count = len(frame)
        np.testing.assert_allclose(response.scores.values, own["scores"][at, :count], **CLOSE)
        rank = response.additional_outputs["rank"].values
        np.testing.assert_array_equal(rank, own["rank"][at, :count, 0])
        # The expected value is a sum over all rows, padding included.
        churn = response.additional_outputs["churn"].values
        np.testing.assert_allclose(churn, own["churn"][at], rtol=1e-4, atol=1e-5)


def test_both_forms_give_the_same_bits(client, kitchen, kitchen_digest):
    # The columnar form has float32 and no flags, so the frames are limited to values that it can
    # hold.
    users = sample(kitchen.metadata, USER, 3)
    offers = sample(kitchen.metadata, TREATMENT, 20, absent=0).drop(columns="is_new")
    by_form = [client.predict("scores/kitchen", users, offers, form=form) for form in FORMS]
    assert by_form[0]["score"].to_numpy().tobytes() == by_form[1]["score"].to_numpy().tobytes()


def test_the_best_treatments_come_first_when_asked_for(client, reference, reference_digest):
    users, treatments = reference_frames(2, 30)
    options = pb.ResponseOptions(top_k=5, treatment_ids=True)
    scores = client.predict("scores/reference", users, treatments, options=options)
    own = reference.score(users, treatments)
    for at, (_, ranked) in enumerate(scores.groupby("user", sort=False)):
        order = np.argsort(-own[at], kind="stable")[:5]
        assert list(ranked["treatment"]) == [treatments.index[row] for row in order]


def test_a_user_without_treatments_gets_an_empty_answer(client, reference_digest):
    users, treatments = reference_frames(2, 3)
    scores = client.predict("scores/reference", users, [treatments, treatments.iloc[:0]])
    assert set(scores["user"]) == {"user-0"}


def test_five_thousand_treatments_are_scored(client, reference, reference_digest):
    users, treatments = reference_frames(1, 5000)
    scores = client.predict("scores/reference", users, treatments)
    np.testing.assert_allclose(scores["score"], reference.score(users, treatments)[0], **CLOSE)


def test_http_gives_the_same_scores(stack, reference, reference_digest):
    users, treatments = reference_frames(1, 10)
    body = {"model": {"name": "scores/reference"}, **http_request(users.iloc[0], treatments)}
    asked = urllib.request.Request(
        f"{stack.serve.http}/v1/predict",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        scores = json.load(answer)["scores"]
    assert [row["id"] for row in scores] == list(treatments.index)
    served = [row["score"] for row in scores]
    np.testing.assert_allclose(served, reference.score(users, treatments)[0], **CLOSE)


def drawn(offer, seed):
    """A number for each treatment, drawn with the seed of its user."""
    import tensorflow as tf

    def draw(seed):
        return tf.random.stateless_uniform([tf.shape(offer)[1]], tf.stack([seed, seed]))

    return tf.map_fn(draw, seed, fn_output_signature=tf.float32) + 0.0 * offer[:, :, 0]


def test_draws_are_repeated_with_the_id_of_a_request_and_not_without(client, serving, tmp_path):
    inputs = [
        Input("offer", TREATMENT, "float32", (numeric("price", required=True),)),
        Input("seed", SEED, "int64"),
    ]
    builder = ModelBuilder(inputs, deterministic=False)
    serving(builder.build(drawn, tmp_path), "scores/drawn")

    def draw(request_id=""):
        message = request({}, pd.DataFrame({"price": [1.0] * 8}))
        message.model.CopyFrom(selector("scores/drawn"))
        message.request_id = request_id
        return tuple(client.call(message).scores.values)

    assert draw() != draw()
    assert draw("a") == draw("a") != draw("b") == draw("b")


def test_versions_are_served_by_tag_and_by_digest_at_once(client, serving, tiny):
    first = serving(tiny(1), "scores/versions")
    second = serving(tiny(2), "scores/versions", "next")
    users, offers = pd.DataFrame({"age": [30]}), pd.DataFrame({"price": [1.0, 2.0]})
    for selected, expected in (
        ({}, 1),
        ({"tag": "latest"}, 1),
        ({"tag": "next"}, 2),
        ({"digest": first}, 1),
        ({"digest": second}, 2),
    ):
        scores = client.predict("scores/versions", users, offers, **selected)
        assert list(scores["score"]) == [expected] * 2, selected
