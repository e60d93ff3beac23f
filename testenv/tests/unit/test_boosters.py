"""tree_package(): XGBoost loads and scores the packages."""

import json

import numpy as np
import pandas as pd
import pytest
import xgboost

from outrigger_testenv.builder import ModelPackage, tree_package
from outrigger_testenv.features import TREATMENT, USER, numeric, vocabulary
from outrigger_testenv.uplift import SLearner, TLearner

COLUMNS = (
    numeric("age", entity=USER, missing="nan"),
    numeric("price", entity=TREATMENT, required=True),
)
USERS = pd.DataFrame({"age": [20.0, None]}, index=["a", "b"])
OFFERS = [pd.DataFrame({"price": [1.0, 2.0, 9.0]}), pd.DataFrame({"price": [3.0]})]
# "post" is in no vocabulary.
OFFERS_ARMS = [
    frame.assign(arm=arms)
    for frame, arms in zip(OFFERS, [["mail", "none", "post"], ["mail"]], strict=True)
]
ROWS = np.array([[20, 1], [20, 2], [20, 9], [np.nan, 3]], "f4")


@pytest.fixture(scope="module")
def booster():
    draw = np.random.default_rng(1)
    table = draw.uniform(0, 50, (1000, 2)).astype("f4")
    labels = ((table[:, 0] > table[:, 1]) ^ (draw.random(1000) < 0.2)).astype("f4")
    data, held_out = (
        xgboost.DMatrix(table[part], labels[part], feature_names=["age", "price"])
        for part in (slice(None, 500), slice(500, None))
    )
    return xgboost.train(
        {"objective": "binary:logistic", "max_depth": 5},
        data,
        60,
        evals=[(held_out, "validation")],
        early_stopping_rounds=5,
        verbose_eval=False,
    )


@pytest.mark.parametrize("file", ["model.ubj", "model.json"])
@pytest.mark.parametrize("output", ["value", "margin"])
def test_scores_are_those_of_the_booster(booster, tmp_path, file, output):
    package = tree_package(booster, COLUMNS, tmp_path, file=file, output=output)
    scores = np.concatenate(package.score(USERS, OFFERS))
    own = booster.inplace_predict(ROWS, predict_type=output)
    assert scores.tobytes() == own.tobytes()
    assert [len(each) for each in package.score(USERS, OFFERS)] == [3, 1]


def test_the_classes_and_the_leaves_of_a_booster_are_columns(tmp_path):
    draw = np.random.default_rng(1)
    table = draw.uniform(0, 50, (500, 2)).astype("f4")
    data = xgboost.DMatrix(table, table.argmax(axis=1) + (table.min(axis=1) > 25))
    parameters = {"objective": "multi:softprob", "num_class": 3}
    booster = xgboost.train(parameters, data, 4)
    classes = tree_package(booster, COLUMNS, tmp_path / "a", width=3, score_column=1)
    own = booster.inplace_predict(ROWS)
    assert np.concatenate(classes.values(USERS, OFFERS)).tobytes() == own.tobytes()
    assert np.concatenate(classes.score(USERS, OFFERS)).tolist() == own[:, 1].tolist()
    leaves = tree_package(booster, COLUMNS, tmp_path / "b", output="leaf", width=12)
    own = booster.predict(xgboost.DMatrix(ROWS), pred_leaf=True)
    assert np.concatenate(leaves.values(USERS, OFFERS)).tolist() == own.tolist()


def test_options_are_written_and_applied(booster, tmp_path):
    package = tree_package(booster, COLUMNS, tmp_path, iterations="best", missing=9)
    options = json.loads((tmp_path / "xgboost" / "options.json").read_text())
    assert options == {"iterations": "best", "missing": 9}
    best = (0, booster.best_iteration + 1)
    assert best[1] < booster.num_boosted_rounds()
    own = booster.inplace_predict(ROWS, iteration_range=best, missing=9)
    assert np.concatenate(package.score(USERS, OFFERS)).tobytes() == own.tobytes()


def test_golden_cases_hold_the_boosters_scores(booster, tmp_path):
    package = tree_package(booster, COLUMNS, tmp_path, golden=(USERS, OFFERS))
    lines = (tmp_path / "golden.jsonl").read_text().splitlines()
    first, second = (json.loads(line) for line in lines)
    assert first["request"]["user"] == {"age": 20.0}
    assert second["request"]["user"] == {}
    expected = [case["expected"]["scores"] for case in (first, second)]
    assert expected == [scores.tolist() for scores in package.score(USERS, OFFERS)]
    assert ModelPackage(tmp_path).metadata.framework == "xgboost"


def predictions(booster, rows, output):
    return booster.inplace_predict(rows, predict_type=output)


@pytest.mark.parametrize("output", ["value", "margin"])
def test_an_s_learner_compares_rows_with_their_controls(booster, tmp_path, output):
    learner = SLearner({"price": 25})
    package = tree_package(
        booster,
        COLUMNS,
        tmp_path,
        output=f"{output}_uplift",
        uplift=learner,
        golden=(USERS, OFFERS),
    )
    controls = ROWS.copy()
    controls[:, 1] = 25
    own = predictions(booster, ROWS, output) - predictions(booster, controls, output)
    assert np.concatenate(package.score(USERS, OFFERS)).tobytes() == own.tobytes()
    assert own.any()
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["uplift"] == {"control": {"price": 25}}
    assert not (tmp_path / "xgboost" / "options.json").exists()


def test_a_t_learner_compares_the_booster_of_the_arm_with_the_controls(booster, tmp_path):
    table = np.random.default_rng(2).uniform(0, 50, (500, 2)).astype("f4")
    data = xgboost.DMatrix(table, table[:, 0] > 25, feature_names=["age", "price"])
    mail = xgboost.train({"objective": "binary:logistic"}, data, 10)
    arm = vocabulary("arm", ["none", "mail"], other=0, entity=TREATMENT, required=True)
    learner = TLearner(arm, {"control": None, "mail": mail})
    package = tree_package(
        booster,
        COLUMNS,
        tmp_path,
        output="value_uplift",
        uplift=learner,
        golden=(USERS, OFFERS_ARMS),
    )
    own = predictions(mail, ROWS, "value") - predictions(booster, ROWS, "value")
    own[[1, 2]] = 0
    assert np.concatenate(package.score(USERS, OFFERS_ARMS)).tobytes() == own.tobytes()
    assert own[[0, 3]].all()
    assert [each.tensor for each in package.metadata.inputs] == ["features", "arm"]
