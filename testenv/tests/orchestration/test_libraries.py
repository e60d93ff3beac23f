"""LightGBM and CatBoost models in the process of the control plane: pushed, checked, served and
refused.
"""

import json
import subprocess

import lightgbm
import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import boosting, requests
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import tree_package
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.features import TREATMENT, USER, numeric, vocabulary
from outrigger_testenv.uplift import TLearner

COLUMNS = (
    numeric("age", entity=USER, missing="nan"),
    numeric("income", entity=USER, missing="nan"),
    numeric("price", entity=TREATMENT, required=True),
)
NAMES = [column.name for column in COLUMNS]
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


def trained_by_lightgbm(table, labels, objective, classes, **parameters):
    data = lightgbm.Dataset(table, labels, feature_name=NAMES)
    parameters = {"objective": objective, "num_threads": 1, "verbosity": -1, **parameters}
    if classes > 2:
        parameters["num_class"] = classes
    return lightgbm.train(parameters, data, 30)


def trained_by_catboost(table, labels, objective, classes):
    catboost = boosting.catboost()
    losses = {"binary": "Logloss", "multiclass": "MultiClass"}
    settings = {"iterations": 30, "depth": 4, "thread_count": 1, "random_seed": 1}
    quiet = {"logging_level": "Silent", "allow_writing_files": False}
    booster = catboost.CatBoost({"loss_function": losses[objective], **settings, **quiet})
    return booster.fit(catboost.Pool(table, labels, feature_names=NAMES))


TRAINED = {"lightgbm": trained_by_lightgbm, "catboost": trained_by_catboost}


def trained(library, objective="binary", classes=2, seed=1, **parameters):
    """Trees of a library that have learned from rows with missing values."""
    draw = np.random.default_rng(seed)
    table = draw.normal(size=(2000, 3))
    labels = np.digitize(table @ draw.normal(1, 0.3, 3), np.linspace(-1, 1, classes - 1))
    table[draw.random(table.shape) < 0.1] = np.nan
    return TRAINED[library](table, labels, objective, classes, **parameters)


@pytest.fixture
def package(users, tmp_path):
    """Trains trees of an objective, and packs them."""

    def train(objective, classes=2, library="lightgbm", **package):
        booster = trained(library, objective, classes)
        return tree_package(booster, COLUMNS, tmp_path, golden=(users.iloc[:3], OFFERS), **package)

    return train


def expect_equal(client, package, name, users, offers, *, tolerance=0.0):
    """Expects served scores of both forms of requests to be those of the package."""
    own = np.concatenate(package.score(users, offers))
    for form in FORMS:
        scores = client.predict(name, users, offers, form=form)["score"].to_numpy("f4")
        # The nearest float32 of the same sums; values depend on the mathematical library.
        np.testing.assert_allclose(scores, own, rtol=2e-7, atol=tolerance, err_msg=form)
    return own


def validated(package):
    """The output of the command for a package."""
    command = [outrigger(), "validate", package.directory]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("library", TRAINED)
@pytest.mark.parametrize("output", ["value", "margin"])
def test_scores_equal_those_of_the_library(client, serving, users, package, *, library, output):
    package = package("binary", library=library, output=output)
    assert package.metadata.framework == library
    name = f"{library}/{output}"
    digest = serving(package, name)
    expect_equal(client, package, name, users, OFFERS)
    assert set(client.predict(name, users, OFFERS)["digest"]) == {digest}
    done = validated(package)
    assert "3 golden cases score as expected" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("library", TRAINED)
def test_one_of_several_classes_is_the_score(client, serving, users, package, library):
    package = package("multiclass", classes=3, library=library, width=3, score_column=2)
    serving(package, f"{library}/classes")
    expect_equal(client, package, f"{library}/classes", users, OFFERS)


def test_leaves_may_have_linear_models(client, serving, users, tmp_path):
    booster = trained("lightgbm", "multiclass", classes=3, linear_tree=True)
    package = tree_package(
        booster, COLUMNS, tmp_path, golden=(users.iloc[:3], OFFERS), width=3, score_column=2
    )
    serving(package, "lightgbm/linear")
    expect_equal(client, package, "lightgbm/linear", users, OFFERS)


WORDS = {"size": ["s", "m", "l"], "zone": ["b", "a"], "mail": ["none", "mens", "womens"]}


@pytest.mark.parametrize("turned", [None, *WORDS])
def test_vocabularies_are_the_categories_of_pandas(tmp_path, turned):
    draw = np.random.default_rng(5)
    table = pd.DataFrame({"age": draw.normal(size=2000)})
    for name, words in WORDS.items():
        table[name] = pd.Categorical(draw.choice(words, 2000), categories=words)
    labels = sum(table[name].cat.codes for name in WORDS) % 2
    data = lightgbm.Dataset(table, labels)
    booster = lightgbm.train({"objective": "binary", "num_threads": 1, "verbosity": -1}, data, 20)
    columns = [numeric("age", entity=USER, missing="nan")]
    for name, words in WORDS.items():
        known = words[::-1] if name == turned else words
        columns.append(vocabulary(name, known, entity=USER, required=True))
    done = validated(tree_package(booster, columns, tmp_path))
    assert (done.returncode == 0) == (turned is None), done.stdout + done.stderr
    if turned is not None:
        path = f"features[{1 + list(WORDS).index(turned)}].vocabulary"
        assert path in done.stdout, done.stdout + done.stderr
        assert "the categories of the column are" in done.stdout


def test_a_file_of_catboost_without_names_gets_a_warning(package):
    package = package("binary", library="catboost")
    warning = "the file has no names of features"
    assert warning not in validated(package).stdout
    file = package.directory / "catboost" / "model.json"
    model = json.loads(file.read_text())
    for feature in model["features_info"]["float_features"]:
        for name in ("feature_id", "feature_name"):
            feature.pop(name, None)
    file.write_text(json.dumps(model))
    done = validated(package)
    assert done.returncode == 0, done.stdout + done.stderr
    assert warning in done.stdout


@pytest.mark.parametrize("library", TRAINED)
def test_a_t_learner_may_be_of_either_library(client, serving, users, tmp_path, library):
    mail = vocabulary("mail", ["none", "mens"], other=0, entity=TREATMENT, required=True)
    learner = TLearner(mail, {"control": None, "mens": trained(library, seed=2)})
    offers = OFFERS.assign(mail=["none", "mens", "mens", "mens"])
    package = tree_package(
        trained(library),
        COLUMNS,
        tmp_path,
        output="value_uplift",
        uplift=learner,
        golden=(users.iloc[:3], offers),
    )
    name = f"{library}/t"
    serving(package, name)
    # A difference of values between 0 and 1, each of which is one of two neighbouring float32.
    own = expect_equal(client, package, name, users, offers, tolerance=2e-7).reshape(-1, 4)
    assert not own[:, 0].any(), "the control has no effect"
    assert own[:, 1:].any(axis=0).all()


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
