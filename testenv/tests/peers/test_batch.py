"""Stage 1, environment: `outrigger batch` scores the rows of files with a real Triton, and a job
that is killed goes on where it was.
"""

import csv
import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outrigger_testenv import tools
from outrigger_testenv.binary import outrigger
from outrigger_testenv.chart.root import may_mount
from outrigger_testenv.oip import environments
from outrigger_testenv.oip.models import Served
from outrigger_testenv.oip.peers import Triton
from outrigger_testenv.processes import Process

ROWS = Served("rows", dimensions=(-1, 2))
TEXTS = Served("identity_bytes", datatype="BYTES")
TIMEOUT = 300
# Longest time of a lease, in seconds.
LEASE = 30
# Gives a worker a namespace of process ids, so that its leases are those of another machine.
ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    """Triton with two models that return their inputs."""
    environments.needs(environments.TRITON)
    with Triton(tmp_path_factory.mktemp("batch") / "triton", (ROWS, TEXTS)) as server:
        yield server


def _command(verb, *arguments):
    return [outrigger(), "batch", verb, *map(str, arguments)]


def _batch(verb, *arguments):
    """Runs a command, and returns its JSON."""
    ended = _ended(verb, *arguments, "-o", "json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def _ended(verb, *arguments):
    """Runs a command to its end."""
    command = _command(verb, *arguments)
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT)


def _write(path, count, seed):
    """Writes rows with an id, a text that the model does not take, and two numbers."""
    x = np.random.default_rng(seed).normal(size=(count, 2)).astype(np.float32)
    ids = [f"{path.stem}-{row}" for row in range(count)]
    days = pa.array(range(count), pa.date32())
    table = pa.table({"id": ids, "x": pa.array(list(x)), "day": days})
    pq.write_table(table, path, row_group_size=70)
    return table


def _output(job):
    """The rows of the manifest's files, in their order, and the manifest."""
    manifest = json.loads((job / "manifest.json").read_text())
    files = [chunk["data"]["name"] for chunk in manifest["chunks"]]
    return pa.concat_tables(pq.read_table(job / name) for name in files), manifest


def _job_file(path, triton, rows, job, **keys):
    """Writes a job with many small chunks, or with other `keys`."""
    path.write_text(
        json.dumps(
            {
                "input": f"{rows}/*.parquet",
                "output": str(job),
                "model": "rows",
                "hosts": triton.grpc,
                "outputs": {"score": "OUT_x"},
                "batch_size": 8,
                "chunk_rows": 20,
                **keys,
            }
        )
    )
    return path


@pytest.mark.parametrize("interface", ["grpc", "rest"])
def test_rows_are_scored_with_their_keys_in_their_order(interface, triton, tmp_path):
    written = [_write(tmp_path / f"{name}.parquet", 150, seed) for seed, name in enumerate("ab")]
    job = tmp_path / "scored"
    summary = _batch(
        *("run", "--input", tmp_path / "*.parquet", "--to", job, "--model", "rows"),
        *("--host", getattr(triton, interface), "--batch-size", 32),
    )
    assert (summary["rows"], summary["scored"], summary["dead"]) == (300, 300, 0)
    found, manifest = _output(job)
    expected = pa.concat_tables(written)
    assert found.column_names == ["id", "day", "OUT_x"]
    assert found["id"].to_pylist() == expected["id"].to_pylist()
    assert found["day"].to_pylist() == expected["day"].to_pylist()
    assert found["OUT_x"].to_pylist() == expected["x"].to_pylist()
    assert {chunk["version"] for chunk in manifest["chunks"]} == {"1"}
    assert _batch("status", job)["state"] == "finished"


def _read_lines(job):
    """The rows of the manifest's JSON Lines, in their order."""
    manifest = json.loads((job / "manifest.json").read_text())
    files = [job / chunk["data"]["name"] for chunk in manifest["chunks"]]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_rows_of_text_are_scored_like_those_of_parquet(ending, triton, tmp_path):
    table = _write(tmp_path / "a.parquet", 150, seed=3).drop_columns("day")
    rows = [{**row, "note": 'two\nlines, "quoted"'} for row in table.to_pylist()]
    text = tmp_path / f"a.{ending}"
    with text.open("w", newline="") as file:
        if ending == "csv":
            writer = csv.DictWriter(file, ["note", "id", "x"])
            writer.writeheader()
            writer.writerows({**row, "x": json.dumps(row["x"])} for row in rows)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    job = tmp_path / "scored"
    summary = _batch(
        *("run", "--input", text, "--to", job, "--output-format", "jsonl", "--model", "rows"),
        *("--host", triton.grpc, "--batch-size", 32),
    )
    assert (summary["rows"], summary["scored"], summary["dead"]) == (150, 150, 0)
    expected = [{"id": row["id"], "note": row["note"], "OUT_x": row["x"]} for row in rows]
    found = _read_lines(job)
    singles = [np.float32(row.pop("OUT_x")).tolist() for row in found]
    assert singles == [row.pop("OUT_x") for row in expected]
    assert found == expected


def test_texts_of_any_length_are_scored(triton, tmp_path):
    texts = [["a", ""], ["数", "b" * 1000], ["c"], ["d", "e", "f"], None]
    pq.write_table(pa.table({"id": range(5), "x": pa.array(texts)}), tmp_path / "a.parquet")
    job = tmp_path / "scored"
    summary = _batch(
        *("run", "--input", tmp_path / "a.parquet", "--to", job, "--model", TEXTS.name),
        *("--host", triton.grpc),
    )
    assert (summary["scored"], summary["dead"]) == (4, 1)
    found, manifest = _output(job)
    assert found["OUT_x"].to_pylist() == texts[:4]
    letters = (job / manifest["chunks"][0]["dead_letters"]["name"]).read_text().splitlines()
    assert [json.loads(line)["row"] for line in letters] == [4]


def test_a_job_that_is_killed_goes_on_where_it_was(triton, tmp_path):
    rows = tmp_path / "rows"
    rows.mkdir()
    written = _write(rows / "a.parquet", 600, seed=7)
    job = tmp_path / "scored"
    settings = _job_file(tmp_path / "job.yaml", triton, rows, job)
    before, kills = 0, 0
    while not (job / "manifest.json").exists():
        process = subprocess.Popen(_command("run", settings), stderr=subprocess.DEVNULL)
        # Each process commits a few chunks, and is killed in the middle of the next ones.
        while process.poll() is None and _commits(job) < before + 4:
            pass
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        assert _commits(job) >= before, "no commit is lost"
        before = _commits(job)
    assert kills > 2
    summary = _batch("run", settings)
    assert (summary["rows"], summary["scored"], summary["dead"]) == (600, 600, 0)
    found, _ = _output(job)
    assert found["id"].to_pylist() == written["id"].to_pylist()
    assert found["score"].to_pylist() == written["x"].to_pylist()


def _commits(job):
    return len(list((job / "commit").glob("[0-9]*.json")))


def test_chunks_of_a_worker_elsewhere_that_is_killed_are_free_after_its_leases(triton, tmp_path):
    if not may_mount():
        tools.skip("needs root's rights, to give a worker a namespace of process ids")
    rows, job = tmp_path / "rows", tmp_path / "scored"
    rows.mkdir()
    written = _write(rows / "a.parquet", 40_000, seed=9)
    # The first worker needs seconds for a chunk, and the second one far less.
    slow, fast = (
        _job_file(
            *(tmp_path / f"{size}.yaml", triton, rows, job),
            **{"batch_size": size, "concurrency": most, "chunk_rows": 5000},
        )
        for size, most in ((1, 1), (500, 8))
    )
    far = Process("far", [*ELSEWHERE, *_command("run", slow)], tmp_path / "far.log")
    near = Process("near", _command("run", fast), tmp_path / "near.log")
    try:
        far.start()
        far.wait_until(lambda: _scored(job) > 0)
        near.start()
        near.wait_until(lambda: _commits(job) > 0)
        far.kill()
        left = {file: until for file, until in _leases_elsewhere(job) if not file.exists()}
        assert left, "it was killed in the middle of a chunk"
        near.wait_until_ended(2 * LEASE)
        assert near.exit_code == 0, near.tail()
    finally:
        far.kill()
        near.kill()
    for file, until in left.items():
        assert until < file.stat().st_mtime < until + LEASE, "it was taken after the lease"
    found, manifest = _output(job)
    assert (manifest["rows"], manifest["dead"]) == (40_000, 0)
    assert found["id"].to_pylist() == written["id"].to_pylist()
    assert found["score"].to_pylist() == written["x"].to_pylist()


def _scored(job):
    """The rows that the workers of a job have scored, as they report it."""
    return sum(json.loads(file.read_text())["scored"] for file in job.glob("worker/*.json"))


def _leases_elsewhere(job):
    """The leases of workers on other machines: the commit that each is for, and the time of its
    end in seconds since 1970.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    here = f"{boot} {os.readlink('/proc/self/ns/pid')}"
    for file in job.glob("lease/*.json"):
        # Those of this machine come and go.
        with suppress(FileNotFoundError):
            lease = json.loads(file.read_text())
            if lease["process"]["scope"] != here:
                yield job / "commit" / file.name, lease["until"]


def test_faults_are_found_before_the_first_row(triton, tmp_path):
    _write(tmp_path / "a.parquet", 10, seed=0)
    given = ("--input", tmp_path / "a.parquet", "--to", tmp_path / "scored", "--host", triton.grpc)
    for arguments, fault in [
        (("--model", "no_such_model"), "no_such_model"),
        (("--model", "rows", "--map", "x=features"), "no column"),
        (("--model", "rows", "--map", "x=id"), "takes FP32"),
        (("--model", "rows", "--map", "y=x"), "no input"),
        (("--model", "rows", "--key", "key"), "no column"),
    ]:
        ended = _ended("run", *given, *arguments)
        assert (ended.returncode, fault in ended.stderr) == (64, True), ended.stderr
    assert not (tmp_path / "scored").exists()
