"""Boosters with factorisation machines in the process of the control plane."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xgboost

from outrigger_testenv import machines, requests
from outrigger_testenv.builder import machine_package
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.features import JOINED, TREATMENT, USER, Input, sparse_list, weight_of
from outrigger_testenv.sparse import Sparse

COLUMNS = 40
WORDS = {"shoes": 2**63 + 9, "hats": 17}


def sparse_input(name, *features):
    return Input(name, JOINED, "int64", features, f"{name}_lengths", f"{name}_weights")


INPUTS = (
    sparse_input(
        machines.XGBOOST_FEATURES,
        sparse_list("profile", 30, entity=USER, default=[]),
        weight_of("discount", 1, entity=TREATMENT, required=True),
    ),
    sparse_input(
        machines.FM_FEATURES,
        sparse_list("words", 5, entity=TREATMENT, vocabulary=WORDS, default=[]),
    ),
)
OFFERS = pd.DataFrame(
    {
        "discount": [0.1, 0.5, 0.9],
        "words": [Sparse(names=["hats"]), Sparse(names=["shoes", "hats"], weights=[2, 0.5]), None],
    },
    index=["a", "b", "c"],
)


@pytest.fixture(scope="module")
def users():
    draw = np.random.default_rng(3)

    def profile():
        # Some ids are no columns, some are there twice.
        ids = draw.integers(0, COLUMNS + 10, draw.integers(0, 20)).tolist()
        return Sparse(ids=ids, weights=draw.normal(0, 1, len(ids)).astype("f4").tolist())

    return pd.DataFrame({"profile": [profile() for _ in range(20)]})


@pytest.fixture(scope="module")
def booster():
    draw = np.random.default_rng(1)
    table = scipy.sparse.random(2000, COLUMNS, 0.3, "csr", "f4", draw, draw.standard_normal)
    labels = np.asarray(table.sum(axis=1)).ravel() > 0
    data = xgboost.DMatrix(table, labels)
    return xgboost.train({"objective": "binary:logistic", "max_depth": 4}, data, 20)


@pytest.mark.parametrize(
    ("classes", "precision", "names"),
    [(1, "float32", {}), (1, "float64", WORDS), (3, "float32", WORDS), (3, "float64", {})],
)
def test_scores_are_those_of_the_reference(
    client, serving, tmp_path, *, booster, users, classes, precision, names
):
    ids = [*range(COLUMNS + 5), *WORDS.values()]
    machine = machines.draw(booster, dict.fromkeys(ids), classes, 8, seed=2)
    machine = dataclasses.replace(machine, names=names)
    package = machine_package(
        booster,
        machine,
        INPUTS,
        tmp_path,
        score_column=classes - 1,
        precision=precision,
        golden=(users, OFFERS),
    )
    name = f"machines/{classes}-{precision}"
    digest = serving(package, name)
    own = np.concatenate(package.score(users, OFFERS))
    for form in (requests.TABLE, requests.KEY_VALUE):
        scores = client.predict(name, users, OFFERS, form=form)
        assert set(scores["digest"]) == {digest}
        np.testing.assert_allclose(scores["score"].to_numpy("f4"), own, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("framework", "its framework is gbdt_fm_softmax, not gbdt_fm"),
        ("part", "there is no file /data/gbdt_fm/deploy.fm"),
        ("line", "the FM file is invalid in line 2"),
    ],
)
def test_an_invalid_package_is_refused_with_the_cause(
    stack, client, tmp_path, *, booster, spoil, message
):
    machine = machines.draw(booster, [1], 3, 2, seed=2)
    package = machine_package(booster, machine, INPUTS, tmp_path)
    if spoil == "framework":
        text = (tmp_path / "metadata.json").read_text()
        (tmp_path / "metadata.json").write_text(text.replace(machines.SOFTMAX, machines.BINARY))
    elif spoil == "part":
        (tmp_path / "gbdt_fm" / "deploy.fm").unlink()
    else:
        head = (tmp_path / "gbdt_fm" / "deploy.fm").read_text().splitlines()[0]
        (tmp_path / "gbdt_fm" / "deploy.fm").write_text(f"{head}\n5 x\n")
    name = f"machines/invalid-{spoil}"
    stack.push(package, name)
    with pytest.raises(OutriggerError) as caught:
        client.load(name)
    assert caught.value.reason == "IMAGE_INVALID"
    assert message in stack.serve.run("models", "why", name).stdout
