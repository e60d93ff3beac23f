"""LightGBM models in the process of the control plane: pushed, checked, served and refused."""

import lightgbm
import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import requests
from outrigger_testenv.builder import tree_package
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.features import TREATMENT, USER, numeric

COLUMNS = (
    numeric("age", entity=USER, missing="nan"),
    numeric("income", entity=USER, missing="nan"),
    numeric("price", entity=TREATMENT, required=True),
)
OFFERS = pd.DataFrame({"price": np.float32([-2, 0, 0.5, 3])}, index=list("abcd"))
FORMS = [requests.TABLE, requests.KEY_VALUE]


@pytest.fixture(scope="module")
def users():
    """Users, some of whom lack values."""
    draw = np.random.default_rng(3)
    table = pd.DataFrame(draw.normal(size=(40, 2)), columns=["age", "income"])
    table.loc[table.index[:5], "age"] = np.nan
    table.loc[table.index[3:8], "income"] = np.nan
    return table


@pytest.fixture
def package(users, tmp_path):
    """Trains trees of an objective, and packs them."""

    def train(objective, classes=2, **package):
        draw = np.random.default_rng(1)
        table = draw.normal(size=(2000, 3))
        labels = np.digitize(table.sum(axis=1), np.linspace(-1, 1, classes - 1))
        table[draw.random(table.shape) < 0.1] = np.nan
        names = [column.name for column in COLUMNS]
        data = lightgbm.Dataset(table, labels, feature_name=names)
        parameters = {"objective": objective, "num_threads": 1, "verbosity": -1}
        if classes > 2:
            parameters["num_class"] = classes
        booster = lightgbm.train(parameters, data, 30)
        return tree_package(booster, COLUMNS, tmp_path, golden=(users.iloc[:3], OFFERS), **package)

    return train


@pytest.mark.parametrize("output", ["value", "margin"])
def test_scores_equal_lightgbms(client, serving, users, package, output):
    package = package("binary", output=output)
    name = f"lightgbm/{output}"
    digest = serving(package, name)
    own = np.concatenate(package.score(users, OFFERS))
    for form in FORMS:
        scores = client.predict(name, users, OFFERS, form=form)
        assert set(scores["digest"]) == {digest}
        # The nearest float32 of the same sums; values depend on the mathematical library.
        np.testing.assert_allclose(scores["score"].to_numpy("f4"), own, rtol=2e-7, err_msg=form)


def test_one_of_several_classes_is_the_score(client, serving, users, package):
    package = package("multiclass", classes=3, width=3, score_column=2)
    serving(package, "lightgbm/classes")
    scores = client.predict("lightgbm/classes", users, OFFERS)["score"].to_numpy("f4")
    own = np.concatenate(package.score(users, OFFERS))
    np.testing.assert_allclose(scores, own, rtol=2e-7)


def test_a_file_of_another_framework_is_refused_with_the_cause(stack, package):
    package = package("binary")
    text = (package.directory / "lightgbm" / "model.txt").read_bytes()
    (package.directory / "lightgbm").rename(package.directory / "catboost")
    (package.directory / "catboost" / "model.txt").unlink()
    (package.directory / "catboost" / "model.json").write_bytes(text)
    metadata = package.directory / "metadata.json"
    metadata.write_text(metadata.read_text().replace('"lightgbm"', '"catboost"'))
    stack.push(package, "lightgbm/other")
    with pytest.raises(OutriggerError) as caught:
        stack.client().load("lightgbm/other")
    assert caught.value.reason == "IMAGE_INVALID"
    why = stack.serve.run("models", "why", "lightgbm/other").stdout
    assert "a model of LightGBM, not of CatBoost: its framework is lightgbm" in why, why
