"""Models of real MLServer and Triton whose descriptions are wrong or are not those of rows, in the
server and in batch jobs.
"""

import json
import subprocess

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.oip import environments
from outrigger_testenv.oip.described import DESCRIBED

MODEL = "elsewhere/model"
TIMEOUT = 120
TEXTS = ["hello", "buy!", "buy!!!"]
SPAM = [[1, 0], [0.75, 0.25], [0.25, 0.75]]
ROWS = [[1.0, 2.0], [0.5, -4.0], [3.0, 3.5]]
BANNER = [[sum(row) + each for each in range(34)] for row in ROWS]
QUERIES = pd.DataFrame({"query": TEXTS, "id": [7, 8, 9], "version": [1, 1, 2]})
SEARCH = [[5, 7, 1], [4, 8, 1], [6, 9, 2]]

PACKAGES = {
    "spam": (
        {"model": "spam"},
        {"text": ("joined", "string", {"name": "text", "entity": "treatment", "required": True})},
        {"tensor": "predict", "kind": "per_treatment", "width": 2, "score": {"column": 1}},
    ),
    "banner": (
        {"model": "banner"},
        {"x": ("user", "float32", {"name": "x", "length": 2, "required": True})},
        {"tensor": "SCORE", "kind": "single", "width": 34, "score": {"column": 33}},
    ),
    "search": (
        {"model": "search", "row_by_row": True},
        {
            "query": ("user", "string", {"name": "query", "required": True}),
            "id": ("user", "int64", {"name": "id", "required": True}),
            "version": ("user", "int64", {"name": "version", "required": True}),
        },
        {"tensor": "embedding", "kind": "single", "width": 3, "score": {"column": 0}},
    ),
}


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Starts a server, once."""
    running = {}

    def start(name):
        if name not in running:
            environments.needs(name.lower())
            directory = tmp_path_factory.mktemp("described") / name
            running[name] = DESCRIBED[name](directory, ()).__enter__()
        return running[name]

    yield start
    for each in running.values():
        each.close()


@pytest.fixture
def served(own_stack, tmp_path):
    """Serves a model of a server by metadata.json alone; returns a client."""

    def serve(peer, way, name):
        remote, inputs, output = PACKAGES[name]
        metadata = {
            "schema": "outrigger.dev/model/v1",
            "framework": "oip",
            "remote": remote,
            "inputs": [
                {"tensor": tensor, "entity": entity, "dtype": dtype, "features": [feature]}
                for tensor, (entity, dtype, feature) in inputs.items()
            ],
            "outputs": [{"name": "score", **output}],
        }
        package = tmp_path / "package"
        package.mkdir()
        (package / "metadata.json").write_text(json.dumps(metadata))
        engines = {"gpu": {"kind": "oip", "endpoint": getattr(peer, way)}}
        stack = own_stack(overrides={"engines": engines}, engine=False)
        stack.push(ModelPackage(package), MODEL)
        return stack.client()

    return serve


@pytest.fixture
def scored(tmp_path):
    """Runs a batch job over a table; returns its output."""

    def run(host, table, **settings):
        file, output = tmp_path / "rows.parquet", tmp_path / "scored"
        table.assign(row=range(len(table))).to_parquet(file)
        job = {"input": str(file), "output": str(output), "hosts": host, "keys": ["row"]}
        (tmp_path / "job.yaml").write_text(json.dumps(job | settings))
        command = [outrigger(), "batch", "run", tmp_path / "job.yaml"]
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=TIMEOUT
        )
        assert ended.returncode == 0, ended.stderr
        frame = pq.read_table(output / "data").to_pandas().sort_values("row")
        assert list(frame["row"]) == list(range(len(table)))
        return frame

    return run


def assert_equal(found, expected):
    np.testing.assert_allclose(np.stack(found.to_list()), expected, rtol=1e-6)


WAYS = pytest.mark.parametrize("way", ["grpc", "rest"])


@WAYS
def test_metadata_counts_before_sizes_that_a_server_describes_wrongly(started, served, way):
    client = served(started("MLServer"), way, "spam")
    offers = pd.DataFrame({"text": TEXTS}, index=list("abc"))
    assert_equal(client.predict(MODEL, pd.DataFrame(index=["u"]), offers)["values"], SPAM)


@WAYS
def test_outputs_that_were_not_asked_for_are_dropped(started, served, way):
    client = served(started("MLServer"), way, "banner")
    users = pd.DataFrame({"x": ROWS}, index=list("abc"))
    assert_equal(client.predict(MODEL, users)["values"], BANNER)


@WAYS
def test_an_ensemble_may_take_one_row_in_a_request(started, served, way):
    client = served(started("Triton"), way, "search")
    assert_equal(client.predict(MODEL, QUERIES)["values"], SEARCH)


@WAYS
def test_a_job_takes_rows_as_they_are_answered(started, scored, way):
    host = getattr(started("MLServer"), way)
    assert_equal(scored(host, pd.DataFrame({"text": TEXTS}), model="spam")["predict"], SPAM)


@WAYS
def test_a_job_has_no_column_of_an_output_without_values(started, scored, way):
    host = getattr(started("MLServer"), way)
    inputs = {"x": {"datatype": "FP32", "shape": [2]}}
    frame = scored(host, pd.DataFrame({"x": ROWS}), model="banner", inputs=inputs)
    assert list(frame.columns) == ["row", "SCORE"]
    assert_equal(frame["SCORE"], BANNER)


@WAYS
def test_a_job_sends_a_row_at_a_time_where_the_model_takes_one(started, scored, way):
    model = {"name": "search", "row_by_row": True}
    frame = scored(getattr(started("Triton"), way), QUERIES, model=model)
    assert_equal(frame["embedding"], SEARCH)
