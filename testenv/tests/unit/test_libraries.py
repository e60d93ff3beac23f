"""tree_package() with boosters of LightGBM: the library loads and scores the packages."""

import json

import lightgbm
import numpy as np
import pandas as pd
import pytest

from outrigger_testenv.builder import ModelPackage, tree_package
from outrigger_testenv.features import TREATMENT, USER, numeric

COLUMNS = (
    numeric("age", entity=USER, missing="nan"),
    numeric("price", entity=TREATMENT, required=True),
)
USERS = pd.DataFrame({"age": [20.0, None]}, index=["a", "b"])
OFFERS = [pd.DataFrame({"price": [1.0, 2.0, 9.0]}), pd.DataFrame({"price": [3.0]})]
ROWS = np.array([[20, 1], [20, 2], [20, 9], [np.nan, 3]], "f4")


@pytest.fixture(scope="module")
def booster():
    draw = np.random.default_rng(1)
    table = draw.uniform(0, 50, (1000, 2))
    labels = (table[:, 0] > table[:, 1]) ^ (draw.random(1000) < 0.2)
    data = lightgbm.Dataset(table, labels, feature_name=["age", "price"])
    parameters = {"objective": "binary", "num_threads": 1, "verbosity": -1}
    return lightgbm.train(parameters, data, 20)


@pytest.mark.parametrize("output", ["value", "margin"])
def test_scores_are_those_of_the_booster(booster, tmp_path, output):
    package = tree_package(booster, COLUMNS, tmp_path, output=output, golden=(USERS, OFFERS))
    assert (tmp_path / "lightgbm" / "model.txt").is_file()
    scores = np.concatenate(package.score(USERS, OFFERS))
    own = booster.predict(ROWS, raw_score=output == "margin").astype("f4")
    assert scores.tobytes() == own.tobytes()
    assert ModelPackage(tmp_path).metadata.framework == "lightgbm"


def test_options_are_written_and_applied(booster, tmp_path):
    package = tree_package(booster, COLUMNS, tmp_path, iterations=[2, 9], missing=9)
    options = json.loads((tmp_path / "lightgbm" / "options.json").read_text())
    assert options == {"iterations": [2, 9], "missing": 9}
    rows = np.where(ROWS == 9, np.nan, ROWS)
    own = booster.predict(rows, start_iteration=2, num_iteration=7).astype("f4")
    assert np.concatenate(package.score(USERS, OFFERS)).tobytes() == own.tobytes()
