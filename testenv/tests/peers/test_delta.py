"""Stage 1, environment: `outrigger-delta` with tables and outputs in a store of objects, and with
the output of a real job.
"""

import json
import os
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outrigger_testenv import delta, onnxmodels, pinned
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import tree_package
from outrigger_testenv.stack import library
from outrigger_testenv.stores.servers import BUCKET, Moto

ROUNDS = 5
TIMEOUT = 300


@pytest.fixture(autouse=True)
def _installed():
    delta.needs_delta()


@pytest.fixture(scope="module")
def moto(tmp_path_factory):
    """S3."""
    pinned.needs(Moto.PINNED)
    with Moto(tmp_path_factory.mktemp("moto") / "store") as server:
        yield server


def _append(output, table, environment=()):
    """Appends as a process of its own."""
    ended = subprocess.run(
        [*delta.COMMAND, str(output), str(table), "-o", "json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env={**os.environ, **dict(environment)},
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def _upload(output, store, key):
    """Writes the files of an output into the store; returns their address."""
    files = store.files()
    for path in output.rglob("*.*"):
        with files.open_output_stream(f"{BUCKET}/{key}/{path.relative_to(output)}") as file:
            file.write(path.read_bytes())
    return f"{store.root}/{key}"


def _rows(table):
    """The rows of a table in the order of their keys."""
    return table.to_pyarrow_table().sort_by("id").to_pylist()


def test_a_store_of_objects(moto, tmp_path):
    from deltalake import DeltaTable

    parts = [delta.rows(range(10)), delta.rows(range(10, 20))]
    output = _upload(delta.write_output(tmp_path / "scored", parts), moto, "scored")
    tables = (f"{moto.root}/table", f"{output}/data/", str(tmp_path / "table"))
    for place in tables:
        first, second = (_append(output, place, moto.environment) for _ in range(2))
        assert (first["is_new"], second["is_new"]) == (True, False)
        assert first["is_copied"] != place.endswith("data/")
        options = {**moto.environment, "AWS_ALLOW_HTTP": "true"} if "://" in place else None
        found = _rows(DeltaTable(place, storage_options=options))
        assert found == delta.rows(range(20)).to_pylist()


def test_processes_that_append_to_a_store_at_once(moto, tmp_path, monkeypatch):
    from deltalake import DeltaTable

    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    output = delta.write_output(tmp_path / "scored", [delta.rows(range(10))])
    rounds = []
    for number in range(ROUNDS):
        place = _upload(output, moto, f"raced-{number}")
        for table in (f"{place}/data", f"{moto.root}/raced-table-{number}"):
            rounds.append([(place, table)] * 3)
    for ends in delta.at_once(rounds):
        assert sum(ends) == 1, ends
    for (_, table), *_ in rounds:
        found = DeltaTable(table, storage_options={"AWS_ALLOW_HTTP": "true"})
        assert (found.version(), len(_rows(found))) == (0, 10)


def _package(columns, directory):
    """A package of trees over two features, which needs no engine."""
    import xgboost

    data = xgboost.DMatrix(columns, columns[:, 0] > 40, feature_names=["age", "price"])
    booster = xgboost.train({"objective": "binary:logistic", "max_depth": 3}, data, 5)
    return tree_package(booster, onnxmodels.FEATURES, directory / "package").directory


def _scored(columns, directory):
    """The output of a job with several chunks."""
    rows, job = directory / "rows.parquet", directory / "scored"
    named = {"age": columns[:, 0], "price": columns[:, 1]}
    pq.write_table(pa.table({"id": range(len(columns)), **named}), rows)
    settings = {
        "input": str(rows),
        "output": str(job),
        "model": {"package": str(_package(columns, directory))},
        "chunk_rows": 300,
    }
    # JSON is valid YAML.
    (directory / "job.yaml").write_text(json.dumps(settings))
    _batch("run", directory / "job.yaml")
    return job


def _batch(*arguments):
    """The JSON of a command of `outrigger batch`."""
    ended = subprocess.run(
        [outrigger(), "batch", *map(str, arguments), "-o", "json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env={**os.environ, **library()},
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_output_of_a_job(tmp_path):
    from deltalake import DeltaTable

    columns = np.random.default_rng(1).normal(40, 10, (1000, 2)).astype("float32")
    job = _scored(columns, tmp_path)
    manifest = json.loads((job / "manifest.json").read_text())
    files = [job / chunk["data"]["name"] for chunk in manifest["chunks"]]
    scored = pa.concat_tables(map(pq.read_table, files)).to_pylist()
    for table in (tmp_path / "table", job / "data"):
        assert _append(job, table)["job"] == manifest["job"]
        assert _rows(DeltaTable(table)) == scored
    # The table in its output is nothing to the commands.
    assert _batch("run", tmp_path / "job.yaml")["scored"] == 1000
    assert [each["state"] for each in _batch("list", tmp_path)] == ["finished"]
    assert _batch("list", job) == []
    assert _batch("status", job)["state"] == "finished"
    large = tmp_path / "large"
    _batch("compact", job, "--to", large)
    assert not _append(large, tmp_path / "table")["is_new"]
    assert _append(large, large / "data")["is_new"]
    _batch("compact", job, "--to", large)
    report = _batch("diff", job, large)
    assert (report["rows"], report["only_a"], report["only_b"]) == (1000, 0, 0)
    assert _rows(DeltaTable(large / "data")) == scored
