"""Packages of boosters with factorisation machines: their files, and the scores of the library."""

import numpy as np
import pandas as pd
import pytest
import xgboost

from outrigger_testenv import machines
from outrigger_testenv.builder import machine_package
from outrigger_testenv.features import JOINED, TREATMENT, USER, Input, sparse_list, weight_of
from outrigger_testenv.sparse import Sparse


@pytest.fixture(scope="module")
def booster():
    draw = np.random.default_rng(1)
    table = draw.uniform(0, 50, (500, 3)).astype("f4")
    labels = (table[:, 0] > table[:, 1]).astype("f4")
    return xgboost.train(
        {"objective": "binary:logistic", "max_depth": 3}, xgboost.DMatrix(table, labels), 4
    )


def sparse(name, rows):
    """The tensors of sparse rows, as pack() makes them."""
    return {
        name: np.array([id for row in rows for id, _ in row], "uint64").view("int64"),
        f"{name}_weights": np.array([x for row in rows for _, x in row], "f4"),
        f"{name}_lengths": np.array([len(row) for row in rows], "int64"),
    }


ROWS = [[(0, 7.0), (1, 30.0)], [(2, 0.0), (2, 45.0), (2**40 + 7, 1.0)], []]
ALONE = [[(2**63 + 1, 0.5)], [], [(9, 2.0), (9, 1.0)]]


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("factors", [0, 4])
def test_margins_are_those_of_the_definition(booster, tmp_path, classes, factors):
    machine = machines.draw(booster, [0, 1, 9, 2**63 + 1], classes, factors, seed=3)
    machines.write(booster, machine, tmp_path, precision="float64")
    score = machines.function(tmp_path, machine.framework)
    found = score(sparse("xgboost_features", ROWS) | sparse("fm_features", ALONE))
    dense = np.full((len(ROWS), 3), np.nan, "f4")
    for at, row in enumerate(ROWS):
        for id, x in row:
            if id < 3:
                dense[at, id] = x
    leaves = booster.predict(xgboost.DMatrix(dense), pred_leaf=True).astype(int)
    for at, ended in enumerate(leaves):
        ids = [(machine.leaves[leaf], 1.0) for leaf in enumerate(ended.tolist())]
        known = [
            (machine.features[id], x)
            for id, x in ALONE[at] + ROWS[at] + ids
            if id in machine.features
        ]
        for of in range(classes):
            values = np.array([features[of] * x for features, x in known], "f8").reshape(
                -1, 1 + factors
            )
            vectors = values[:, 1:]
            cross = vectors.sum(axis=0) @ vectors.sum(axis=0) - (vectors**2).sum()
            margin = machine.bias[of] + values[:, 0].sum() + 0.5 * cross
            assert found["margin"][at, of] == pytest.approx(margin, abs=1e-5)
    sums = found["score"].sum(axis=1)
    assert np.allclose(sums, 1) if classes > 1 else (sums > 0).all()


def test_a_model_needs_no_features_of_the_machine_alone(booster, tmp_path):
    machine = machines.draw(booster, [0], 1, 2, seed=3)
    machines.write(booster, machine, tmp_path)
    score = machines.function(tmp_path, machine.framework)
    tensors = sparse("xgboost_features", ROWS)
    alone = score(tensors)["score"]
    assert alone.tolist() == score(tensors | sparse("fm_features", [[]] * 3))["score"].tolist()


def test_a_package_scores_its_users_and_treatments(booster, tmp_path):
    lists = {"lengths": "xgboost_features_lengths", "weights": "xgboost_features_weights"}
    features = (
        sparse_list("profile", 3, entity=USER, default=[]),
        weight_of("discount", 1, entity=TREATMENT, required=True),
    )
    inputs = (Input("xgboost_features", JOINED, "int64", features, **lists),)
    machine = machines.draw(booster, [0, 1, 2], 3, 2, seed=3)
    users = pd.DataFrame({"profile": [Sparse(ids=[0, 2], weights=[7, 1]), Sparse()]})
    offers = pd.DataFrame({"discount": [30.0, 2.0]})
    package = machine_package(
        booster, machine, inputs, tmp_path, score_column=2, golden=(users, offers)
    )
    assert package.metadata.framework == "gbdt_fm_softmax"
    rows = [
        [(0, 7.0), (2, 1.0), (1, 30.0)],
        [(0, 7.0), (2, 1.0), (1, 2.0)],
        [(1, 30.0)],
        [(1, 2.0)],
    ]
    own = machines.function(tmp_path, "gbdt_fm_softmax")(sparse("xgboost_features", rows))["score"]
    assert np.concatenate(package.values(users, offers)).tolist() == own.tolist()
    assert np.concatenate(package.score(users, offers)).tolist() == own[:, 2].tolist()
    assert len((tmp_path / "golden.jsonl").read_text().splitlines()) == 2
