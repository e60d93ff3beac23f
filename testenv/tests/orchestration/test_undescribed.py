"""Directories of versions without metadata.json: the files of XGBoost Serving, and a SavedModel."""

import shutil

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xgboost

from outrigger_testenv import machines
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.sparse import Sparse

MODEL = "serving"
COLUMNS = 40
NOBODY = pd.DataFrame(index=["nobody"])


@pytest.fixture
def directory(tmp_path):
    """An empty directory of versions."""
    directory = tmp_path / "models"
    directory.mkdir()
    return directory


@pytest.fixture
def client(own_stack, directory):
    """Starts a control plane without another engine, whose model comes from the directory."""

    def start(engine=False, **model):
        entry = {"name": MODEL, "directory": str(directory), **model}
        images = {"images": {"directory_poll_interval": "200ms"}}
        stack = own_stack(engine=engine, models=[entry], overrides=images)
        client = stack.client()
        client.why = lambda: stack.serve.run("models", "why", MODEL).stdout
        return client

    return start


@pytest.fixture(scope="module")
def trained():
    """Trains a booster on rows of ids."""

    def train(rounds):
        draw = np.random.default_rng(rounds)
        table = scipy.sparse.random(2000, COLUMNS, 0.3, "csr", "f4", draw, draw.standard_normal)
        labels = np.asarray(table.sum(axis=1)).ravel() > 0
        parameters = {"objective": "binary:logistic", "max_depth": 4}
        return xgboost.train(parameters, xgboost.DMatrix(table, labels), rounds)

    return train


@pytest.fixture(scope="module")
def rows():
    """Rows as treatments; some of the ids are no columns, and one row has none."""
    draw = np.random.default_rng(3)

    def row(size):
        ids = draw.permutation(COLUMNS + 10)[:size].tolist()
        return Sparse(ids=ids, weights=draw.normal(0, 1, size).astype("f4").tolist())

    names = (machines.XGBOOST_FEATURES, machines.FM_FEATURES)
    table = {name: [row(size) for size in (0, 3, 12, 30)] for name in names}
    return pd.DataFrame(table, index=["a", "b", "c", "d"])


def write(directory, number, booster, machine=None):
    """Writes a version as XGBoost Serving has it."""
    unfinished = directory / "unfinished"
    unfinished.mkdir()
    booster.save_model(unfinished / "model.ubj")
    (unfinished / "model.ubj").rename(unfinished / "deploy.model")
    if machine is not None:
        (unfinished / "deploy.fm").write_text("\n".join(machine.lines()) + "\n")
        (unfinished / "deploy.leaf_mapping").write_text("\n".join(machine.mapping()) + "\n")
    unfinished.rename(directory / str(number))


def wait_for(client, *tags):
    """Waits until exactly these tags are answered."""

    def answered():
        served = client.model(MODEL).tags
        return {tag.name for tag in served if tag.serving_digest} == set(tags)

    client.wait_until(answered, what=f"not {tags}")


def by_xgboost(booster, rows):
    """The values, margins and leaves of rows by XGBoost."""
    table = np.full((len(rows), COLUMNS), np.nan, "f4")
    for row, each in zip(table, rows[machines.XGBOOST_FEATURES], strict=True):
        known = [(id, x) for id, x in zip(each.ids, each.weights, strict=True) if id < COLUMNS]
        for id, x in known:
            row[id] = x
    data = xgboost.DMatrix(table)
    return {
        "value": booster.predict(data),
        "margin": booster.predict(data, output_margin=True),
        "leaf": booster.predict(data, pred_leaf=True),
    }


def expect_xgboosts(client, booster, rows, **selected):
    """Expects the outputs of the served version to be XGBoost's."""
    rows = rows[[machines.XGBOOST_FEATURES]]
    answer = client.predict(MODEL, NOBODY, rows, **selected)
    own = by_xgboost(booster, rows)
    for column, output in (("score", "value"), ("margin", "margin")):
        assert answer[column].to_numpy("f4").tobytes() == own[output].tobytes(), output
    assert np.array_equal(np.stack(answer["leaf"].to_numpy()), own["leaf"])


def test_trees_are_served_and_tried_under_a_new_number(client, directory, trained, rows):
    seven, eight = trained(10), trained(12)
    write(directory, 7, seven)
    labels = {"stable": 7, "canary": 8}
    client = client(versions="all", tag="stable", labels=labels)
    wait_for(client, "7", "latest", "stable")
    expect_xgboosts(client, seven, rows)
    write(directory, 8, eight)
    wait_for(client, "7", "8", "latest", "stable", "canary")
    expect_xgboosts(client, eight, rows, tag="canary")
    expect_xgboosts(client, eight, rows, tag="8")
    expect_xgboosts(client, seven, rows, tag="7")
    client.wait_until(lambda: "canary" in client.why(), what="no trial")


@pytest.mark.parametrize("classes", [1, 3])
def test_a_machine_decides_about_the_framework(client, directory, trained, rows, classes):
    booster = trained(10)
    machine = machines.draw(booster, range(COLUMNS + 5), classes, 4, seed=2)
    write(directory, 1, booster, machine)
    client = client()
    wait_for(client, "1", "latest")
    scores = client.predict(MODEL, NOBODY, rows)["score" if classes == 1 else "values"]
    machines.write(booster, machine, directory.parent)
    score = machines.function(directory.parent, machine.framework)
    own = score(tensors(rows))["score"]
    answered = np.stack(scores.to_numpy()).reshape(own.shape)
    np.testing.assert_allclose(answered, own, rtol=0, atol=2e-6)


def tensors(rows):
    """The tensors of rows."""
    packed = {}
    for name in rows.columns:
        packed[name] = np.array([id for row in rows[name] for id in row.ids], np.int64)
        weights = [weight for row in rows[name] for weight in row.weights]
        packed[f"{name}_weights"] = np.array(weights, "f4")
        packed[f"{name}_lengths"] = np.array([len(row.ids) for row in rows[name]], np.int64)
    return packed


def test_a_machine_without_a_part_is_refused_and_the_version_before_it_stays(
    client, directory, trained, rows
):
    booster = trained(10)
    write(directory, 1, booster)
    client = client()
    wait_for(client, "1", "latest")
    write(directory, 2, booster, machines.draw(booster, [1], 1, 4, seed=2))
    (directory / "2" / "deploy.leaf_mapping").rename(directory / "away")
    client.wait_until(lambda: "deploy.leaf_mapping" in client.why(), what="it is not refused")
    expect_xgboosts(client, booster, rows)
    with pytest.raises(OutriggerError):
        client.predict(MODEL, NOBODY, rows, tag="2")


def test_a_saved_model_has_a_feature_for_each_input(client, directory, tmp_path):
    import tensorflow as tf

    class Model(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 1], tf.float32, name="age"),
                tf.TensorSpec([None, 2], tf.float32, name="place"),
            ]
        )
        def score(self, age, place):
            return {"score": age[:, 0] + 2 * place[:, 0] - place[:, 1]}

    model = Model()
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=model.score)
    shutil.move(tmp_path / "model", directory / "unfinished")
    (directory / "unfinished").rename(directory / "1")
    client = client(engine=True)
    wait_for(client, "1", "latest")
    users = pd.DataFrame({"age": [30.0, 40.0], "place": [[1.0, 2.0], [0.5, -1.0]]})
    assert client.predict(MODEL, users)["score"].tolist() == [30.0, 42.0]
