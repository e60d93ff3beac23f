"""Stage 1, environment: `outrigger batch` scores with the model of a package, in its own process or
in engines that it starts, as the model's own library does.
"""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outrigger_testenv import onnxfiles, onnxmodels
from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.builder import ModelBuilder, tree_package
from outrigger_testenv.features import TREATMENT, USER, Input, numeric
from outrigger_testenv.processes import Process
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


def test_a_column_of_ids_is_a_sparse_feature_and_no_key(tmp_path):
    import xgboost

    draw, directory = np.random.default_rng(1), tmp_path / "package"
    columns = np.where(draw.random((500, 12)) < 0.3, np.float32(1), np.nan)
    weights = 100 * np.arange(12)
    data = xgboost.DMatrix(columns, np.nansum(columns * weights, axis=1))
    booster = xgboost.train({"max_depth": 5}, data, 10)
    directory.mkdir()
    booster.save_model(directory / "model.ubj")
    # XGBoost Serving's file needs no metadata.json: its features are lists of ids.
    (directory / "model.ubj").rename(directory / "deploy.model")
    ids = [np.flatnonzero(row == 1).tolist() for row in columns]
    table = pa.table({"id": range(500), "xgboost_features": pa.array(ids, pa.list_(pa.int64()))})
    pq.write_table(table, tmp_path / "rows.parquet")
    command = [outrigger(), "batch", "run", "--package", directory, "--to", tmp_path / "scored"]
    command += ["--input", tmp_path / "rows.parquet"]
    subprocess.run(command, check=True, timeout=TIMEOUT)
    found, _ = _output(tmp_path / "scored")
    assert found.column_names == ["id", "value", "margin", "leaf"]
    assert found["id"].to_pylist() == table["id"].to_pylist()
    assert np.array_equal(np.float32(found["value"].to_pylist()), booster.predict(data))


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


def test_the_first_job_of_the_docs(tmp_path):
    page = (repository() / "docs" / "batch.md").read_text()
    section = page.partition("\n## The first job\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    (made, run, read), file = [text for _, text in blocks[:3]], blocks[3][1]
    environment = {**os.environ, "PATH": f"{Path(outrigger()).parent}:{os.environ['PATH']}"}
    (tmp_path / "job.yaml").write_text(file)
    for command in (
        [sys.executable, "-c", made],
        ["sh", "-ec", run],
        ["sh", "-ec", "outrigger batch run job.yaml -o json"],
        [sys.executable, "-c", f"{read}\nprint(len(scores), scores.column_names)"],
    ):
        shown = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=tmp_path, env=environment
        ).stdout
    assert shown == "10000 ['customer', 'score']\n"


def _retried(*arguments):
    command = [outrigger(), "batch", "retry-dead", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT)


def test_dead_letters_are_scored_again(packages, tmp_path):
    package, count = packages("xgboost"), 300
    table = _rows(tmp_path / "rows.parquet", count)
    prices = [None if row % 100 == 7 else price for row, price in enumerate(table["price"])]
    table = table.set_column(2, "price", pa.array(prices, pa.float32()))
    pq.write_table(table, tmp_path / "rows.parquet")
    first, again = tmp_path / "scored", tmp_path / "again"
    summary = json.loads(_run(package, tmp_path / "rows.parquet", first).stdout)
    assert (summary["scored"], summary["dead"]) == (297, 3)
    # The new version takes rows without a price.
    mended = tmp_path / "package"
    shutil.copytree(package.directory, mended)
    metadata = mended / "metadata.json"
    changed = json.loads(metadata.read_text())
    for feature in changed["inputs"][0]["features"]:
        if feature["name"] == "price":
            del feature["required"]
            feature["default"] = 2.5
    metadata.write_text(json.dumps(changed))
    (mended / "golden.jsonl").unlink(missing_ok=True)
    ended = _retried(first, "--to", again, "--package", mended, "-o", "json")
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["rows"], summary["scored"], summary["dead"]) == (3, 3, 0)
    assert summary["manifest"] == str(again / "manifest.json")
    found, _ = _output(again)
    dead = table.take([7, 107, 207])
    expected = _expected(package, dead.set_column(2, "price", pa.array([2.5] * 3, pa.float32())))
    assert found["id"].to_pylist() == dead["id"].to_pylist()
    np.testing.assert_allclose(found["score"].to_pylist(), expected, rtol=1e-6)
    # The same command again goes on with the same job; others are refused.
    ended = _retried(first, "--to", again, "--package", mended)
    assert (ended.returncode, "3 of 3 rows scored" in ended.stdout) == (0, True), ended.stderr
    for arguments, problem in [
        ((again, "--to", tmp_path / "third", "--package", mended), "no dead letters"),
        ((tmp_path / "none", "--to", tmp_path / "third", "--package", mended), "is not a job"),
        ((first, "--to", first, "--package", mended), str(first)),
        ((first, "--package", mended), "--to"),
    ]:
        ended = _retried(*arguments)
        assert (ended.returncode, problem in ended.stderr) == (64, True), ended.stderr
    assert not (tmp_path / "third").exists()


class _Running:
    """A job of 16,000 rows in small chunks that has committed some of them, and its engines."""

    def __init__(self, package, instances, directory):
        self.output = directory / "scored"
        self.rows = _rows(directory / "rows.parquet", 16_000)
        settings = {
            "input": str(directory / "rows.parquet"),
            "output": str(self.output),
            "model": {"package": str(package), "instances": instances},
            "batch_size": 8,
            "concurrency": 2,
            "chunk_rows": 200,
        }
        # JSON is valid YAML.
        (directory / "job.yaml").write_text(json.dumps(settings))
        command = [outrigger(), "batch", "run", directory / "job.yaml"]
        self.process = Process("batch", command, directory / "batch.log", _environment())

    def __enter__(self):
        self.process.start()
        self.process.wait_until(lambda: len(list((self.output / "commit").glob("*.json"))) > 2)
        return self

    def __exit__(self, *_):
        self.process.kill()

    def engines(self):
        """The ids of the processes that the job has started."""
        files = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(child) for file in files for child in file.read_text().split()]

    def is_in_its_middle(self):
        """True before the job has ended."""
        return self.process.running and not (self.output / "manifest.json").exists()


def test_engines_end_with_a_job_that_is_killed(tmp_path):
    package = onnxmodels.ends_at_a_call(tmp_path / "package")
    with _Running(package.directory, 2, tmp_path) as job:
        engines = job.engines()
        handles = [os.pidfd_open(engine) for engine in engines]
        assert (len(engines), job.is_in_its_middle()) == (2, True)
        # The job alone, not its group of processes.
        os.kill(job.process.pid, signal.SIGKILL)
        job.process.wait_until_ended()
    for engine, handle in zip(engines, handles, strict=True):
        ended, _, _ = select.select([handle], [], [], 20)
        os.close(handle)
        assert ended, f"the engine {engine} is alive after its job"


def test_an_engine_that_is_killed_is_started_again(tmp_path):
    package = onnxmodels.ends_at_a_call(tmp_path / "package")
    with _Running(package.directory, 1, tmp_path) as job:
        (engine,) = job.engines()
        handle = os.pidfd_open(engine)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        assert select.select([handle], [], [], 20)[0] and job.is_in_its_middle()
        os.close(handle)
        job.process.wait_until_ended(TIMEOUT)
        assert job.process.exit_code == 0, job.process.tail()
    found, _ = _output(job.output)
    # The score of this model is the price.
    assert found["id"].equals(job.rows["id"]) and found["score"].equals(job.rows["price"])
