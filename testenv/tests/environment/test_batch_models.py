"""Stage 1, environment: `outrigger batch` scores with the model of a package, in its own process or
in engines that it starts, as the model's own library does.
"""

import json
import os
import shutil
import subprocess

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outrigger_testenv import onnxfiles, onnxmodels
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelBuilder, tree_package
from outrigger_testenv.features import TREATMENT, USER, Input, numeric
from outrigger_testenv.stack import library

TIMEOUT = 300.0
ENGINES = ["onnx", "tensorflow"]


def _table():
    """Ages and prices of 2,000 customers, and whether each bought."""
    draw = np.random.default_rng(1)
    columns = np.column_stack([draw.integers(18, 80, 2000), draw.normal(0, 3, 2000)])
    bought = 0.05 * (columns[:, 0] - 40) + 0.1 * columns[:, 1] + draw.normal(0, 1, 2000) > 0
    return columns.astype("float32"), bought


def _trees(directory):
    import xgboost

    columns, bought = _table()
    data = xgboost.DMatrix(columns, bought, feature_names=["age", "price"])
    booster = xgboost.train({"objective": "binary:logistic", "max_depth": 4}, data, 20)
    return tree_package(booster, onnxmodels.FEATURES, directory)


def _onnx(directory):
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(*_table())
    return onnxmodels.classifier(model, onnxmodels.FEATURES, directory)


def _tensorflow(directory):
    import tensorflow as tf

    class Model(tf.Module):
        """A score for each treatment."""

        def __call__(self, user, treatment):
            return 1 / (1 + tf.exp(-0.05 * user[:, None, 0] - 0.1 * treatment[:, :, 0]))

    inputs = [
        Input("user", USER, "float32", (numeric("age", default=30),)),
        Input("treatment", TREATMENT, "float32", (numeric("price", required=True),)),
    ]
    return ModelBuilder(inputs).build(Model(), directory)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A package of each framework, over the same features; made when it is first asked for."""
    make, made = {"xgboost": _trees, "onnx": _onnx, "tensorflow": _tensorflow}, {}

    def of(framework):
        if framework not in made:
            made[framework] = make[framework](tmp_path_factory.mktemp(framework) / "package")
        return made[framework]

    return of


def _rows(path, count):
    """Writes rows, some of which have no age; returns them."""
    draw = np.random.default_rng(count)
    ages = [float(age) if age < 75 else None for age in draw.integers(18, 80, count)]
    prices = draw.normal(0, 3, count).astype("float32")
    table = pa.table({"id": range(count), "age": pa.array(ages, pa.float64()), "price": prices})
    pq.write_table(table, path)
    return table


def _expected(package, table):
    """The scores of the model's own library. Where an age is absent, the user has none."""
    prices = table["price"].to_pandas()
    treatments = [pd.DataFrame({"price": [price]}) for price in prices]
    # The default of the feature.
    users = pd.DataFrame({"age": table["age"].to_pandas().fillna(30)})
    return np.concatenate(package.score(users, treatments))


def _environment():
    return {**os.environ, **onnxfiles.library(), **library()}


def _command(package, rows, job, *more):
    given = ("--package", package.directory, "--input", rows, "--to", job, *more)
    return [outrigger(), "batch", "run", *map(str, given), "-o", "json"]


def _run(*arguments):
    return subprocess.run(
        _command(*arguments),
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=_environment(),
    )


def _output(job):
    """The rows of the manifest's files, in their order, and the manifest."""
    manifest = json.loads((job / "manifest.json").read_text())
    files = [chunk["data"]["name"] for chunk in manifest["chunks"]]
    return pa.concat_tables(pq.read_table(job / name) for name in files), manifest


def _check(package, table, job):
    """Every row is in the output, in order, with the score of the model's own library."""
    found, manifest = _output(job)
    assert found["id"].to_pylist() == table["id"].to_pylist()
    expected = _expected(package, table)
    scores = np.array(found["score"].to_pylist(), "float32")
    if scores.ndim == 2:
        # The probabilities of both classes, of which the score is the second one.
        scores = scores[:, 1]
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-6)
    return manifest


@pytest.mark.parametrize("framework", ["xgboost", *ENGINES])
def test_rows_have_the_scores_of_the_library(framework, packages, tmp_path):
    package, table = packages(framework), _rows(tmp_path / "rows.parquet", 3000)
    ended = _run(package, tmp_path / "rows.parquet", tmp_path / "scored")
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["rows"], summary["scored"], summary["dead"]) == (3000, 3000, 0)
    manifest = _check(package, table, tmp_path / "scored")
    assert manifest["chunks"][0]["version"].startswith("sha256:")


def test_a_package_that_is_not_valid_is_found_before_the_first_row(packages, tmp_path):
    _rows(tmp_path / "rows.parquet", 10)
    broken = tmp_path / "package"
    shutil.copytree(packages("xgboost").directory, broken)
    (model,) = (broken / "xgboost").iterdir()
    model.write_bytes(model.read_bytes()[:100])
    command = (tmp_path / "rows.parquet", tmp_path / "scored")
    ended = _run(type(packages("xgboost"))(broken), *command)
    assert (ended.returncode, "IMAGE_INVALID" in ended.stderr) == (64, True), ended.stderr
    pq.write_table(pa.table({"id": [1], "age": [1.0]}), tmp_path / "rows.parquet")
    ended = _run(packages("xgboost"), *command)
    assert (ended.returncode, 'no column "price"' in ended.stderr) == (64, True), ended.stderr
    ended = _run(packages("xgboost"), *command, "--host", "localhost:1")
    assert ended.returncode == 64, "a package is in place of hosts"
    assert not (tmp_path / "scored").exists()
