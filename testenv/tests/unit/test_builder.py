"""ModelBuilder: TensorFlow loads and scores the exported models."""

import json
import os
import subprocess

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelBuilder, ModelPackage
from outrigger_testenv.features import (
    SINGLE,
    TREATMENT,
    TREATMENT_COUNT,
    USER,
    Input,
    Metadata,
    Output,
    list_of,
    numeric,
    vocabulary,
)
from outrigger_testenv.reference import reference_frames, reference_model
from outrigger_testenv.stack import library

INPUTS = [
    Input("user", USER, "float32", (numeric("age", default=30),)),
    Input("word", USER, "int64", (vocabulary("channel", ["web"], default="web"),)),
    Input("offer", TREATMENT, "float32", (numeric("price", required=True),)),
    Input("count", TREATMENT_COUNT, "int32"),
]
USERS = pd.DataFrame({"age": [20, 40], "channel": ["web", "fax"]}, index=["a", "b"])
OFFERS = [pd.DataFrame({"price": [1.0, 2.0]}), pd.DataFrame({"price": [3.0]})]


def total(user, word, offer, count):
    del count
    import tensorflow as tf

    return offer[:, :, 0] + user + 100 * tf.cast(word, tf.float32)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    directory = tmp_path_factory.mktemp("package")
    return ModelBuilder(INPUTS).build(total, directory, golden=(USERS, OFFERS))


def test_scores_are_trimmed_to_each_users_treatments(package):
    assert [scores.tolist() for scores in package.score(USERS, OFFERS)] == [[21, 22], [143]]


def test_golden_cases_hold_the_json_form_and_tensorflows_scores(package):
    lines = (package.directory / "golden.jsonl").read_text().splitlines()
    case = json.loads(lines[1])
    assert case["request"] == {
        "user": {"age": 40, "channel": "fax"},
        "treatments": [{"id": "0", "features": {"price": 3.0}}],
    }
    assert case["expected"] == {"scores": [143.0]}
    assert len(lines) == 2


def test_metadata_is_read_back_as_it_was_written(package):
    assert Metadata.read(package.directory) == ModelBuilder(INPUTS).metadata


def test_the_signature_has_every_input_even_an_unused_one(package):
    import tensorflow as tf

    loaded = tf.saved_model.load(str(package.saved_model))
    inputs = loaded.signatures["serving_default"].structured_input_signature[1]
    assert {name: spec.shape.as_list() for name, spec in inputs.items()} == {
        "user": [None, 1],
        "word": [None, 1],
        "offer": [None, None, 1],
        "count": [None],
    }


@pytest.mark.parametrize("form", ["model", "function over a model", "model of models"])
def test_a_keras_model_runs_in_the_engine_with_its_weights(tmp_path, form):
    import tensorflow as tf

    user = tf.keras.Input((1,), name="user")
    hidden = tf.keras.layers.Dense(4, activation="relu")(user)
    hidden = tf.keras.layers.BatchNormalization()(hidden)
    model = tf.keras.Model({"user": user}, tf.keras.layers.Dense(1, activation="sigmoid")(hidden))
    exported = {
        "model": model,
        "function over a model": lambda user: model({"user": user}),
        "model of models": tf.keras.Model({"user": user}, model({"user": user})),
    }[form]
    builder = ModelBuilder(INPUTS[:1], [Output("churn", "churn", SINGLE)])
    package = builder.build(exported, tmp_path, golden=(USERS, OFFERS))
    expected = model({"user": np.array([[20], [40]], "f4")}).numpy()[:, 0]
    scores = np.concatenate(package.score(USERS, OFFERS))
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    command = [outrigger(), "validate", tmp_path]
    environment = {**os.environ, **library()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0 and "2 golden cases" in done.stdout, done.stdout + done.stderr


def test_golden_cases_have_all_columns(tmp_path):
    import tensorflow as tf

    def model(user):
        return tf.concat([user, 2 * user, 3 * user], axis=1)

    output = Output("classes", "class", SINGLE, width=3, score_column=1)
    builder = ModelBuilder(INPUTS[:1], [output])
    package = builder.build(model, tmp_path, golden=(USERS, OFFERS))
    assert [scores.tolist() for scores in package.score(USERS, OFFERS)] == [[40], [80]]
    cases = (tmp_path / "golden.jsonl").read_text(encoding="utf-8").splitlines()
    expected = [json.loads(case)["expected"] for case in cases]
    assert expected == [{"score": [20, 40, 60]}, {"score": [40, 80, 120]}]
    assert Metadata.read(tmp_path) == builder.metadata


def test_lists_become_ragged_tensors(tmp_path):
    import tensorflow as tf

    def model(prices, lengths):
        lists = tf.RaggedTensor.from_row_lengths(prices, tf.reshape(lengths, [-1]))
        return tf.reshape(tf.reduce_sum(lists, 1), tf.shape(lengths))

    feature = list_of("price", 3, default=[0.5])
    builder = ModelBuilder([Input("prices", TREATMENT, "float32", (feature,), "lengths")])
    offers = [pd.DataFrame({"price": [[1, 2], [], None]}), pd.DataFrame({"price": [[4.0]]})]
    package = builder.build(model, tmp_path, golden=(USERS, offers))
    assert [scores.tolist() for scores in package.score(USERS, offers)] == [[3, 0, 0.5], [4]]
    assert Metadata.read(tmp_path) == builder.metadata
    case = json.loads((tmp_path / "golden.jsonl").read_text(encoding="utf-8").splitlines()[0])
    features = [each["features"] for each in case["request"]["treatments"]]
    assert features == [{"price": [1, 2]}, {"price": []}, {}]


def test_a_numeric_directory_is_found(package, tmp_path):
    package.metadata.write(tmp_path)
    version = tmp_path / "tensorflow_serving_model" / "model" / "00000007"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"")
    assert ModelPackage(tmp_path).saved_model == version


def test_the_reference_model_has_its_published_shape(tmp_path):
    package = reference_model(tmp_path, golden=False)
    users, treatments = reference_frames(2, 1000)
    assert [len(scores) for scores in package.score(users, treatments)] == [1000, 1000]
    assert package.metadata.inputs[0].width == 4
    assert package.metadata.inputs[1].width == 20
