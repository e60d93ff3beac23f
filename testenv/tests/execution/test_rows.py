"""Stage 3, execution: the rows of a file are scored as TensorFlow and Predict score them."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import campaign
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import Client
from outrigger_testenv.everything import everything
from outrigger_testenv.features import SEED, TREATMENT, USER
from outrigger_testenv.rowfile import (
    write_csv,
    write_list_parquet,
    write_lists,
    write_parquet,
    write_requests,
)
from outrigger_testenv.samples import sample
from outrigger_testenv.stack import Stack, library

NAME = "rows"
USERS, OFFERS = 150, 4


class Form(NamedTuple):
    """A form of rows: the ending of its files, and the function that writes one. `is_row` is True
    if a row has one treatment, `is_list` if it has lists with the features of several.
    """

    ending: str
    write: Callable[..., None]
    is_row: bool = False
    is_list: bool = False


FORMS = {
    "csv": Form("csv", write_csv, is_row=True),
    "parquet": Form("parquet", write_parquet, is_row=True),
    "parquet-lists": Form("parquet", write_list_parquet, is_list=True),
    "jsonl-lists": Form("jsonl", write_lists, is_list=True),
    "jsonl-requests": Form("jsonl", write_requests),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@pytest.fixture(scope="module", params=["campaign", "everything"])
def case(request, tmp_path_factory):
    """A package with users, treatments and TensorFlow's scores: the demo's, and those of a model
    with all kinds of features.
    """
    given = request.config.getoption("--model")
    directory = tmp_path_factory.mktemp("rows")
    if not given and request.param == "campaign":
        data = os.environ.get("DATA")
        table = campaign.load(Path(data)) if data else campaign.generate(4_000)
        package = campaign.train(table, directory, "1", 1)
        return with_scores(package, table.customers.iloc[: 10 * USERS], campaign.OFFERS)
    if given and request.param != "campaign":
        pytest.skip("the model was tried already")
    package = ModelPackage(Path(given).resolve()) if given else everything(directory)
    random = not package.metadata.deterministic
    if random or any(each.entity == SEED for each in package.metadata.inputs):
        pytest.skip("the scores cannot be compared")
    users = filled(sample(package.metadata, USER, USERS))
    return with_scores(package, users, filled(sample(package.metadata, TREATMENT, OFFERS)))


def with_scores(package, users, offers):
    return package, users, offers, package.score(users, offers)


def filled(frame):
    """The frame without empty texts, which CSV cannot express."""
    return frame.map(lambda value: "filled" if isinstance(value, str) and not value else value)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The directory of the server for files."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def pod(files):
    """A server that validates files."""
    with Stack(overrides={"validation": {"directory": str(files)}}) as running:
        yield running


@pytest.fixture(scope="module")
def served(case, pod):
    """The digest of the package on the server, and the options that name it there."""
    digest = pod.push(case[0], NAME)
    client = pod.client()
    client.load(NAME)
    client.wait_until_serving(NAME, digest)
    options = ["--server", pod.serve.target, "--model", f"{NAME}@{digest}"]
    return digest, options + [f"--text={name}" for name in texts(case[0])]


def run(*arguments):
    """The finished command."""
    command = [str(outrigger()), "validate", *map(str, arguments)]
    environment = {**os.environ, **library()}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def validate(*arguments):
    """The report on the rows, and the exit code."""
    done = run(*arguments, "-o", "json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["rows"], done.returncode


def read(path):
    """The written scores, flat, and the digests, as pandas reads them."""
    if path.suffix == ".jsonl":
        frame = pd.read_json(path, lines=True)
    else:
        frame = {".csv": pd.read_csv, ".parquet": pd.read_parquet}[path.suffix](path)
    assert "error" not in frame or frame["error"].isna().all()
    return np.concatenate([np.atleast_1d(score) for score in frame["score"]]), set(frame["digest"])


@each_form
@pytest.mark.parametrize("where", ["package", "server"])
def test_scores_are_tensorflows(case, served, tmp_path, form, where):
    package, users, offers, expected = case
    rows, scores = (tmp_path / f"{kind}.{form.ending}" for kind in ("rows", "scores"))
    form.write(rows, users, offers, expected)
    source = served[1] if where == "server" else [package.directory]
    report, code = validate(*source, "--input", rows, "--scores", scores, "--atol", "1e-6")
    assert code == 0, json.dumps(report, indent=1)
    per_user = len(offers) if form.is_row else 1
    assert (report["scored"], report["requests"]) == (len(users) * per_user, len(users))
    got, digests = read(scores)
    np.testing.assert_allclose(got, np.concatenate(expected), rtol=1e-4, atol=1e-6)
    assert report["agreement"]["compared"] == len(got)
    assert digests == {served[0]}


@each_form
def test_the_pod_scores_a_file_as_predict_does(case, served, pod, files, form):
    package, users, offers, expected = case
    names = [f"{kind}-{package.directory.name}.{form.ending}" for kind in ("rows", "scores")]
    form.write(files / names[0], users, offers, expected)
    token = pod.serve.token.read_text().strip()
    how = {"digest": served[0], "token": token, "atol": 1e-6, "overwrite": True}
    with Client(pod.serve.admin) as client:
        report = client.score_file(NAME, *names, **how)
    assert report.passed, report
    command = ["models", "validate", f"{NAME}@{served[0]}", "--input", names[0]]
    done = pod.serve.run(*command, "--atol", "1e-6", "-o", "json", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert (rows["scored"], rows["agreement"]["compared"]) == (
        report.scored,
        report.agreement.compared,
    )
    assert (report.requests, report.digest) == (len(users), served[0])
    got, digests = read(files / names[1])
    assert report.agreement.compared == len(got)
    assert digests == {served[0]}
    predicted = pod.client().predict(NAME, users, offers, digest=served[0])["score"].to_numpy()
    # One score per user stands in each of the user's rows.
    repeated = np.repeat(predicted, len(got) // len(predicted))
    np.testing.assert_allclose(got, repeated, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(predicted, np.concatenate(expected), rtol=1e-4, atol=1e-6)


def texts(package):
    """The features whose values are text."""
    each = [feature for input in package.metadata.inputs for feature in input.features]
    return [feature.name for feature in each if has_text(package, feature)]


def has_text(package, feature):
    """True if requests send text for the feature."""
    of = next(input for input in package.metadata.inputs if feature in input.features)
    if feature.vocabulary is not None:
        return isinstance(feature.vocabulary[0], str)
    return feature.hash_buckets is not None or of.dtype == "string"


def test_a_wrong_row_and_a_wrong_score_are_found(case, tmp_path):
    package, users, offers, expected = case
    shifted = [np.array(scores, "f8") for scores in expected]
    shifted[3][0] += 1
    rows = tmp_path / "rows.csv"
    write_csv(rows, users, offers, shifted)
    with rows.open("a") as file:
        file.write("one cell\n")
    report, code = validate(package.directory, "--input", rows)
    assert code == 1
    assert [error["reason"] for error in report["first_errors"]] == ["REQUEST_MALFORMED"]
    assert report["first_errors"][0]["row"] == len(users) * len(offers) + 1
    assert report["agreement"]["differing"] == 1
    worst = report["agreement"]["worst"][0]
    assert (worst["row"], worst["user"]) == (3 * len(offers) + 1, str(users.index[3]))
    assert worst["expected"] - worst["score"] == pytest.approx(1, abs=1e-3)


def test_the_given_rows_are_scored(request, capsys):
    model, rows = (request.config.getoption(option) for option in ("--model", "--rows"))
    if not (model and rows):
        pytest.skip("no file of rows was given")
    done = run(model, "--input", rows)
    with capsys.disabled():
        print(f"\n{done.stdout}{done.stderr}", end="")
    assert done.returncode == 0
