"""tree_package() with boosters of LightGBM and CatBoost: their library scores the packages."""

import json

import lightgbm
import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import boosting
from outrigger_testenv.builder import ModelPackage, tree_package
from outrigger_testenv.features import TREATMENT, USER, numeric, vocabulary
from outrigger_testenv.uplift import SLearner, TLearner

COLUMNS = (
    numeric("age", entity=USER, missing="nan"),
    numeric("price", entity=TREATMENT, required=True),
)
USERS = pd.DataFrame({"age": [20.0, None]}, index=["a", "b"])
OFFERS = [pd.DataFrame({"price": [1.0, 2.0, 9.0]}), pd.DataFrame({"price": [3.0]})]
ROWS = np.array([[20, 1], [20, 2], [20, 9], [np.nan, 3]], "f4")


def rows_and_labels(seed=1):
    draw = np.random.default_rng(seed)
    table = draw.uniform(0, 50, (1000, 2))
    return table, (table[:, 0] > table[:, 1]) ^ (draw.random(1000) < 0.2)


@pytest.fixture(scope="module")
def booster():
    return trained()


def trained(seed=1, **parameters):
    table, labels = rows_and_labels(seed)
    data = lightgbm.Dataset(table, labels, feature_name=["age", "price"])
    parameters = {"objective": "binary", "num_threads": 1, "verbosity": -1, **parameters}
    return lightgbm.train(parameters, data, 20)


@pytest.mark.parametrize("output", ["value", "margin"])
def test_scores_are_those_of_the_booster(booster, tmp_path, output):
    package = tree_package(booster, COLUMNS, tmp_path, output=output, golden=(USERS, OFFERS))
    assert (tmp_path / "lightgbm" / "model.txt").is_file()
    scores = np.concatenate(package.score(USERS, OFFERS))
    own = booster.predict(ROWS, raw_score=output == "margin").astype("f4")
    assert scores.tobytes() == own.tobytes()
    assert ModelPackage(tmp_path).metadata.framework == "lightgbm"


@pytest.mark.parametrize("output", ["value", "margin", "leaf"])
def test_leaves_may_have_linear_models(tmp_path, output):
    booster = trained(linear_tree=True)
    wide = {"width": 20, "score_column": 3} if output == "leaf" else {}
    package = tree_package(
        booster, COLUMNS, tmp_path, output=output, golden=(USERS, OFFERS), **wide
    )
    assert "is_linear=1" in (tmp_path / "lightgbm" / "model.txt").read_text()
    kind = {"value": {}, "margin": {"raw_score": True}, "leaf": {"pred_leaf": True}}[output]
    own = booster.predict(ROWS, **kind)
    own = own[:, 3] if output == "leaf" else own
    assert np.concatenate(package.score(USERS, OFFERS)).tolist() == own.astype("f4").tolist()


def test_options_are_written_and_applied(booster, tmp_path):
    package = tree_package(booster, COLUMNS, tmp_path, iterations=[2, 9], missing=9)
    options = json.loads((tmp_path / "lightgbm" / "options.json").read_text())
    assert options == {"iterations": [2, 9], "missing": 9}
    rows = np.where(ROWS == 9, np.nan, ROWS)
    own = booster.predict(rows, start_iteration=2, num_iteration=7).astype("f4")
    assert np.concatenate(package.score(USERS, OFFERS)).tobytes() == own.tobytes()


def difference(booster, other_rows):
    """The difference of the values for the rows and for others."""
    return booster.predict(ROWS).astype("f4") - booster.predict(other_rows).astype("f4")


def test_an_s_learner_compares_rows_with_their_controls(booster, tmp_path):
    learner = SLearner({"price": 25})
    package = tree_package(
        booster, COLUMNS, tmp_path, output="value_uplift", uplift=learner, golden=(USERS, OFFERS)
    )
    own = difference(booster, np.column_stack([ROWS[:, 0], np.full(len(ROWS), 25, "f4")]))
    assert np.concatenate(package.score(USERS, OFFERS)).tobytes() == own.tobytes()
    assert own.any()


def test_a_t_learner_compares_the_booster_of_the_arm_with_the_controls(booster, tmp_path):
    mail = trained(seed=2)
    arm = vocabulary("arm", ["none", "mail"], other=0, entity=TREATMENT, required=True)
    learner = TLearner(arm, {"control": None, "mail": mail})
    offers = [each.assign(arm="mail") for each in OFFERS]
    package = tree_package(
        booster, COLUMNS, tmp_path, output="value_uplift", uplift=learner, golden=(USERS, offers)
    )
    assert (tmp_path / "lightgbm" / "arms" / "mail.txt").is_file()
    own = mail.predict(ROWS).astype("f4") - booster.predict(ROWS).astype("f4")
    assert np.concatenate(package.score(USERS, offers)).tobytes() == own.tobytes()


@pytest.mark.parametrize(
    ("loss", "output", "prediction"),
    [
        ("Logloss", "value", "Probability"),
        ("Logloss", "margin", "RawFormulaVal"),
        ("RMSE", "value", "RawFormulaVal"),
        ("Poisson", "value", "Exponent"),
    ],
)
def test_scores_are_those_of_catboost(tmp_path, loss, output, prediction):
    catboost = boosting.catboost()
    table, labels = rows_and_labels()
    settings = {"loss_function": loss, "iterations": 20, "depth": 3, "thread_count": 1}
    quiet = {"logging_level": "Silent", "allow_writing_files": False}
    data = catboost.Pool(table, labels.astype(int), feature_names=["age", "price"])
    booster = catboost.CatBoost({**settings, **quiet}).fit(data)
    options = {"iterations": [2, 9]}
    package = tree_package(
        booster, COLUMNS, tmp_path, output=output, golden=(USERS, OFFERS), **options
    )
    assert (tmp_path / "catboost" / "model.json").is_file()
    assert package.metadata.framework == "catboost"
    own = booster.predict(ROWS, prediction, ntree_start=2, ntree_end=9)
    own = own[:, 1] if prediction == "Probability" else own
    scores = np.concatenate(package.score(USERS, OFFERS))
    assert scores.tobytes() == own.astype("f4").tobytes()


def test_a_feature_with_a_blank_in_its_name_may_be_the_control(tmp_path):
    table, labels = rows_and_labels()
    data = lightgbm.Dataset(table, labels, feature_name=["the age", "the price"])
    booster = lightgbm.train({"objective": "binary", "num_threads": 1, "verbosity": -1}, data, 20)
    columns = (
        numeric("the age", entity=USER, missing="nan"),
        numeric("the price", entity=TREATMENT, required=True),
    )
    uplift = SLearner({"the price": 0.0})
    package = tree_package(booster, columns, tmp_path, output="value_uplift", uplift=uplift)
    users = USERS.rename(columns={"age": "the age"})
    offers = [offer.rename(columns={"price": "the price"}) for offer in OFFERS]
    own = booster.predict(ROWS).astype("f4") - booster.predict(ROWS * [1, 0]).astype("f4")
    assert np.concatenate(package.score(users, offers)).tobytes() == own.tobytes()
