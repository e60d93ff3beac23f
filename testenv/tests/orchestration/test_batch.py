"""After a batch job, with a real control plane: its sample is scored again by
predictions, its output is compared with others, and its files become few.
"""

import json
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import tree_package
from outrigger_testenv.features import TREATMENT, USER, numeric
from outrigger_testenv.processes import free_ports
from outrigger_testenv.stack import Stack

MODEL = "team/batch"
FEATURES = (
    numeric("age", entity=USER, default=30),
    numeric("price", entity=TREATMENT, required=True),
)
ROWS = 500
TIMEOUT = 120


def _package(directory, seed):
    """A model of XGBoost on random values, which differ by the seed."""
    import xgboost

    draw = np.random.default_rng(seed)
    table = draw.normal(size=(2000, 2)).astype("float32")
    data = xgboost.DMatrix(table, draw.random(2000), feature_names=["age", "price"])
    booster = xgboost.train({"objective": "reg:logistic", "max_depth": 4}, data, 10)
    return tree_package(booster, FEATURES, directory)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A file of rows, whose columns have other names than the features."""
    draw = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    numbers = draw.normal(size=(2, ROWS)).astype("float32")
    names = [f"row-{row}" for row in range(ROWS)]
    pq.write_table(pa.table({"id": names, "years": numbers[0], "cost": numbers[1]}), path)
    return path


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """A control plane with the model in the view of features."""
    (port,) = free_ports(1)
    models = [{"name": MODEL, "view": "features"}]
    settings = {"server": {"oip": f"127.0.0.1:{port}"}}
    with Stack(settings, models, engine=False) as stack:
        stack.oip = f"127.0.0.1:{port}"
        stack.digests = [
            stack.push(_package(tmp_path_factory.mktemp(f"package-{seed}"), seed), MODEL, tag)
            for seed, tag in enumerate(("latest", "other"))
        ]
        yield stack
        stack.check()


def _ended(verb, *arguments):
    """Runs a command to its end."""
    command = [outrigger(), "batch", verb, *map(str, arguments), "-o", "json"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT)


def _done(verb, *arguments):
    """Runs a command that succeeds; returns its report."""
    ended = _ended(verb, *arguments)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def jobs(serving, rows, tmp_path_factory):
    """The outputs of two jobs: with the first version, and with the other one."""
    directory = tmp_path_factory.mktemp("jobs")
    outputs = []
    for digest in serving.digests:
        job = {
            "input": str(rows),
            "output": str(directory / digest[-8:]),
            "model": {"name": MODEL, "version": digest},
            "hosts": serving.oip,
            "inputs": {"age": "years", "price": "cost"},
            "keys": ["id"],
            "chunk_rows": 20,
        }
        file = directory / f"{digest[-8:]}.yaml"
        file.write_text(json.dumps(job))
        assert _done("run", file)["scored"] == ROWS
        outputs.append(directory / digest[-8:])
    return outputs


def _scores(output, files):
    """The ids and scores of files, in their order."""
    table = pa.concat_tables(pq.read_table(output / file["name"]) for file in files)
    return table["id"].to_pylist(), table["score"].to_numpy()


def _manifest(output):
    return json.loads((output / "manifest.json").read_text())


def test_a_sample_is_predicted_again_by_the_digest_of_the_job(serving, jobs):
    for job, digest in zip(jobs, serving.digests, strict=True):
        assert _manifest(job)["digest"] == digest
        report = _done("verify", job, "--server", serving.serve.target, "--rows", 100)
        assert (report["version"], report["answered"]) == (digest, [digest])
        assert report["version_match"] == "same"
        scores = report["scores"]
        assert (scores["scored"], scores["agreement"]["compared"]) == (100, 100)
        assert scores["agreement"]["largest"] < 1e-6
        # The hosts of the job name the digest as the version.
        report = _done("verify", job, "--host", serving.oip, "--rows", 100, "--seed", 3)
        assert (report["version_match"], report["rows"]) == ("same", 100)
        assert report["columns"][0]["largest"] == 0


def test_another_version_is_not_that_of_the_job(serving, jobs):
    ended = _ended(
        *("verify", jobs[0], "--server", serving.serve.target, "--model", f"{MODEL}:other"),
    )
    assert ended.returncode == 1, ended.stderr
    report = json.loads(ended.stdout)
    assert report["version_match"] == "different"
    assert report["answered"] == [serving.digests[1]]
    assert report["scores"]["agreement"]["differing"] > 0


def test_outputs_are_compared_by_key(jobs):
    report = _done("diff", *jobs, "--worst", 3)
    first, second = (
        _scores(job, [chunk["data"] for chunk in _manifest(job)["chunks"]]) for job in jobs
    )
    assert first[0] == second[0]
    differences = np.abs(first[1].astype("float64") - second[1])
    (column,) = report["columns"]
    assert (report["keys"], report["rows"], report["only_a"]) == (["id"], ROWS, 0)
    assert column["values"] == ROWS
    assert column["largest"] == pytest.approx(differences.max(), rel=1e-12)
    assert column["mean"] == pytest.approx(differences.mean(), rel=1e-9)
    # Ranks of equal values are their mean, which pandas computes too.
    ranks = [pa.array(scores).to_pandas().rank() for scores in (first[1], second[1])]
    assert column["rank_correlation"] == pytest.approx(ranks[0].corr(ranks[1]), rel=1e-9)
    worst = np.argsort(-differences, kind="stable")[:3]
    assert [row["key"]["id"] for row in column["worst"]] == [first[0][at] for at in worst]
    ended = _ended("diff", *jobs, "--max-difference", differences.max() / 2)
    assert ended.returncode == 1
    assert "differ by more" in ended.stderr


def test_reports_are_text_for_people(serving, jobs):
    def text(*arguments):
        command = [outrigger(), "batch", *map(str, arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
        return ended.stdout.splitlines()

    lines = text("diff", *jobs, "--worst", 2)
    assert lines[2] == f"{ROWS} rows with the same id; 0 only in A, 0 only in B"
    assert lines[3].startswith("score: ")
    assert "largest difference 0." in lines[3]
    assert [line.startswith("  id row-") for line in lines[4:]] == [True, True]
    lines = text("verify", jobs[0], "--server", serving.serve.target, "--rows", 10)
    assert lines[0] == f"job      {jobs[0]}, model {MODEL}: 10 rows"
    assert lines[1] == f"version  the same: {serving.digests[0]}"
    assert any("10 scores compared: 0 differ" in line for line in lines)


def test_files_become_few_and_stay_equal(jobs, tmp_path):
    large = tmp_path / "large"
    report = _done("compact", jobs[0], "--to", large)
    assert len(report["files"]) == 1
    chunks = [chunk["data"] for chunk in _manifest(jobs[0])["chunks"]]
    assert report["files"][0]["files"] == len(chunks) == ROWS / 20
    before, after = _scores(jobs[0], chunks), _scores(large, report["files"])
    assert before[0] == after[0]
    assert before[1].tobytes() == after[1].tobytes()
    _done("diff", jobs[0], large, "--max-difference", 0)


def test_an_input_that_has_changed_and_a_damaged_output_are_refused(serving, rows, tmp_path):
    copied = tmp_path / "rows.parquet"
    copied.write_bytes(rows.read_bytes())
    job = tmp_path / "scored"
    given = ("--map", "age=years", "--map", "price=cost", "--key", "id")
    _done("run", "--input", copied, "--to", job, "--model", MODEL, "--host", serving.oip, *given)
    verify = ("verify", job, "--server", serving.serve.target)
    _done(*verify)
    data = job / _manifest(job)["chunks"][0]["data"]["name"]
    content = data.read_bytes()
    data.write_bytes(content[:100] + b"x" + content[101:])
    ended = _ended(*verify)
    assert (ended.returncode, "was changed" in ended.stderr) == (1, True), ended.stderr
    data.write_bytes(content)
    pq.write_table(pq.read_table(copied).slice(1), copied)
    ended = _ended(*verify)
    assert (ended.returncode, "has changed" in ended.stderr) == (1, True), ended.stderr
