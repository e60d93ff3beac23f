"""Stage 1, environment: `outrigger batch` with its input and its output in stores of objects of
other projects, which go away and come back.
"""

import csv
import io
import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from outrigger_testenv import pinned
from outrigger_testenv.binary import outrigger
from outrigger_testenv.oip import environments
from outrigger_testenv.oip.models import Served
from outrigger_testenv.oip.peers import Triton
from outrigger_testenv.stores.servers import ALL, BUCKET, Google, Moto

ROWS = Served("rows", dimensions=(-1, 2))
TIMEOUT = 600
# Seconds that the store is away.
AWAY = 60


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    """Triton with a model that returns its input."""
    environments.needs(environments.TRITON)
    with Triton(tmp_path_factory.mktemp("triton") / "triton", (ROWS,)) as server:
        yield server


@pytest.fixture(scope="module", params=ALL, ids=lambda kind: kind.__name__)
def store(request, tmp_path_factory):
    """A store of each kind."""
    yield from _running(request.param, tmp_path_factory)


@pytest.fixture
def moto(tmp_path_factory):
    """Moto's server alone."""
    yield from _running(Moto, tmp_path_factory)


def _running(kind, tmp_path_factory):
    pinned.needs(kind.PINNED)
    with kind(tmp_path_factory.mktemp(kind.__name__) / "store") as server:
        yield server


class Job:
    """A job over rows in `store`, whose output is there too."""

    def __init__(self, store, triton, rows, name, **changes):
        self.store, self.files = store, store.files()
        self.rows = self._write(rows, f"{name}/in")
        self.place = f"{name}/out"
        self.output = f"{store.root}/{self.place}"
        self.settings = Path(store.directory / f"{name}.json")
        settings = {
            "input": f"{store.root}/{name}/in/",
            "output": self.output,
            "model": "rows",
            "hosts": triton.grpc,
            "outputs": {"score": "OUT_x"},
            "batch_size": 8,
            "chunk_rows": 20,
            **changes,
        }
        self.settings.write_text(json.dumps(settings))

    def _write(self, count, prefix):
        """Writes two files of rows, and something that is none."""
        x = np.random.default_rng(count).normal(size=(count, 2)).astype(np.float32)
        table = pa.table({"id": range(count), "x": pa.array(list(x))})
        for part, name in enumerate(["a", "day=1/b"]):
            half = table.slice(part * (count // 2), count // 2)
            path = f"{BUCKET}/{prefix}/{name}.parquet"
            with self.files.open_output_stream(path) as file:
                pq.write_table(half, file, row_group_size=70)
        with self.files.open_output_stream(f"{BUCKET}/{prefix}/_SUCCESS") as file:
            file.write(b"not a row")
        return table

    def replace_by_text(self, ending):
        """Writes the rows as files of text in place of those of Parquet."""
        prefix = f"{BUCKET}/{self.place.removesuffix('/out')}/in"
        for part, name in enumerate(["a", "day=1/b"]):
            self.files.delete_file(f"{prefix}/{name}.parquet")
            half = self.rows.slice(part * (len(self.rows) // 2), len(self.rows) // 2).to_pylist()
            text = io.StringIO()
            if ending == "csv":
                writer = csv.writer(text)
                writer.writerow(["id", "x"])
                writer.writerows((row["id"], json.dumps(row["x"])) for row in half)
            else:
                text.writelines(json.dumps(row) + "\n" for row in half)
            with self.files.open_output_stream(f"{prefix}/{name}.{ending}") as file:
                file.write(text.getvalue().encode())

    def lines(self):
        """The rows of an output in JSON Lines, in the order of its manifest."""
        manifest = json.loads(self._read("manifest.json"))
        names = [chunk["data"]["name"] for chunk in manifest["chunks"]]
        return [json.loads(line) for name in names for line in self._read(name).splitlines()]

    def start(self):
        """A process that runs the job."""
        return subprocess.Popen(
            [outrigger(), "batch", "run", self.settings, "-o", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.store.environment},
        )

    def run(self):
        """The summary of the job."""
        return _summary(self.start())

    def command(self, verb, *arguments):
        """Runs another command to its end."""
        return subprocess.run(
            [outrigger(), "batch", verb, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env={**os.environ, **self.store.environment},
        )

    def commits(self):
        """The number of commits, as another client sees it."""
        from pyarrow import fs

        selector = fs.FileSelector(f"{BUCKET}/{self.place}/commit", allow_not_found=True)
        return len(self.files.get_file_info(selector))

    def check(self):
        """Checks that the output has all rows once, in their order."""
        manifest = json.loads(self._read("manifest.json"))
        names = [chunk["data"]["name"] for chunk in manifest["chunks"]]
        found = pa.concat_tables(
            pq.read_table(f"{BUCKET}/{self.place}/{name}", filesystem=self.files) for name in names
        )
        assert np.array_equal(found["id"], self.rows["id"])
        scores, x = (pc.list_flatten(column) for column in (found["score"], self.rows["x"]))
        assert np.array_equal(scores, x) and not found["score"].null_count
        return manifest

    def _read(self, name):
        with self.files.open_input_stream(f"{BUCKET}/{self.place}/{name}") as file:
            return file.read()


def _summary(process):
    """The summary that a process prints at its end."""
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    return json.loads(output)


def test_conditional_writes_hold(store):
    def put(round_and_writer):
        number, writer = round_and_writer
        return number, store.put_new(f"conditions/{number}", f"writer {writer}".encode())

    with ThreadPoolExecutor(8) as writers:
        answers = list(writers.map(put, ((number, it) for number in range(25) for it in range(8))))
    for number in range(25):
        statuses = [status for each, status in answers if each == number]
        assert sum(status in (200, 201) for status in statuses) == 1, statuses
        assert {status for status in statuses if status >= 300} <= {409, 412}, statuses


def test_changes_of_settings_at_once_are_all_kept(store):
    if isinstance(store, Google):
        pytest.skip("the translator knows no generations but 0")
    # The commands ask for no more of a job.
    assert store.put_new("settings/plan.json", b"{}") in (200, 201)
    names = ["batch_size", "concurrency", "rows_per_second", "tokens_in_flight"]

    def change(assignment):
        command = [outrigger(), "batch", "set", f"{store.root}/settings", assignment, "-o", "json"]
        environment = {**os.environ, **store.environment}
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=TIMEOUT, env=environment
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    for number in range(1, 6):
        with ThreadPoolExecutor(len(names)) as writers:
            list(writers.map(change, (f"{name}={number}" for name in names)))
        control = change("paused=")
        assert control == {**dict.fromkeys(names, number), "paused": False, "cancelled": False}


def test_a_job_in_a_store(store, triton):
    job = Job(store, triton, 300, "whole")
    summary = job.run()
    assert (summary["rows"], summary["scored"], summary["dead"]) == (300, 300, 0)
    assert summary["manifest"] == f"{job.output}/manifest.json"
    job.check()
    listed = job.command("list", f"{store.root}/whole", "-o", "json")
    assert [each["state"] for each in json.loads(listed.stdout)] == ["finished"], listed.stderr
    status = job.command("status", job.output)
    assert job.output in status.stdout and "finished" in status.stdout, status.stderr


def test_patterns_in_the_middle_of_an_address(store, triton):
    job = Job(store, triton, 40, "patterns")
    # Matched are `day=1/b` alone, and not what lies above or below it, or has another name.
    for name in ["day=1/c/b", "day=1/b.csv", "night=1/b", "day=10/b"]:
        with job.files.open_output_stream(f"{BUCKET}/patterns/in/{name}.parquet") as file:
            file.write(b"not Parquet")
    job.rows = job.rows.slice(20)
    settings = json.loads(job.settings.read_text())
    for part, pattern in enumerate(["in/day=?/b.parquet", "i*/day=?/?.parquet"]):
        job.place = f"patterns/out{part}"
        settings["input"] = f"{store.root}/patterns/{pattern}"
        settings["output"] = job.output = f"{store.root}/{job.place}"
        job.settings.write_text(json.dumps(settings))
        assert job.run()["scored"] == 20
        job.check()
    settings["input"] = f"{store.root}/patterns/in/day=??/*.csv"
    job.settings.write_text(json.dumps(settings))
    process = job.start()
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 64 and "no file matches" in errors, errors


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_text_in_a_store(moto, triton, ending):
    job = Job(moto, triton, 300, f"text-{ending}", output_format="jsonl", columns={"id": "INT64"})
    job.replace_by_text(ending)
    summary = job.run()
    assert (summary["rows"], summary["scored"], summary["dead"]) == (300, 300, 0)
    lines = job.lines()
    assert [line["id"] for line in lines] == job.rows["id"].to_pylist()
    scores = np.array([line["score"] for line in lines], dtype=np.float32)
    assert np.array_equal(scores, np.stack(job.rows["x"].to_pylist()).astype(np.float32))
    large = f"{job.output}-large"
    compacted = job.command("compact", job.output, "--to", large)
    assert compacted.returncode == 0, compacted.stderr
    compared = job.command("diff", job.output, large, "--max-difference", "0", "-o", "json")
    assert compared.returncode == 0, compared.stderr
    assert json.loads(compared.stdout)["rows"] == 300
    verified = job.command("verify", job.output, "--host", triton.grpc, "-o", "json")
    assert verified.returncode == 0, verified.stderr


def test_a_job_that_is_killed_goes_on_where_it_was(store, triton):
    job = Job(store, triton, 600, "killed")
    before, kills = 0, 0
    while before < 30:
        process = job.start()
        # Each process commits a few chunks, and is killed in the middle of the next ones.
        while process.poll() is None and job.commits() < before + 6:
            pass
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        process.communicate()
        assert job.commits() >= before, "no commit is lost"
        before = job.commits()
    assert kills > 2
    assert job.run()["scored"] == 600
    job.check()


def test_two_workers_on_one_job(store, triton):
    job = Job(store, triton, 600, "shared")
    workers = [job.start(), job.start()]
    for summary in map(_summary, workers):
        assert (summary["scored"], summary["dead"]) == (600, 0)
    job.check()


def test_a_job_waits_for_a_store_that_is_away(moto, triton):
    job = Job(moto, triton, 4000, "away")
    process = job.start()
    _until(process, lambda: job.commits() >= 5)
    moto.relay.cut()
    time.sleep(AWAY)
    assert process.poll() is None, process.communicate()
    moto.relay.mend()
    summary = _summary(process)
    assert (summary["scored"], summary["dead"]) == (4000, 0)
    assert summary["seconds"] > AWAY
    job.check()


def test_a_job_waits_for_a_store_that_hangs(moto, triton):
    job = Job(moto, triton, 4000, "hangs")
    process = job.start()
    _until(process, lambda: job.commits() >= 5)
    # Requests that it has got are answered later, when nobody waits for the answer.
    moto.process.pause()
    time.sleep(AWAY)
    assert process.poll() is None, process.communicate()
    moto.process.resume()
    summary = _summary(process)
    assert (summary["scored"], summary["dead"]) == (4000, 0)
    job.check()


def test_a_store_that_is_not_there_is_an_error(moto, triton):
    job = Job(moto, triton, 40, "absent")
    moto.relay.cut()
    ended = job.command("status", job.output)
    assert ended.returncode == 1 and "the store does not answer" in ended.stderr, ended.stderr
    moto.relay.mend()
    absent = job.command("status", "s3://nothing/out")
    assert absent.returncode == 64 and "is not a job" in absent.stderr, absent.stderr
    settings = json.loads(job.settings.read_text())
    for key in ("output", "input"):
        job.settings.write_text(json.dumps(settings | {key: "s3://nothing/out/"}))
        process = job.start()
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 64, errors
        assert "the bucket s3://nothing does not exist" in errors


def test_a_store_that_ignores_conditions_is_refused(triton, tmp_path):
    pinned.needs(Google.PINNED)
    with Google(tmp_path / "store", translates=False) as store:
        job = Job(store, triton, 40, "refused")
        _, errors = job.start().communicate(timeout=TIMEOUT)
        assert "ignores the condition" in errors
        assert job.commits() == 0


def test_a_job_whose_credentials_are_refused_goes_on_later(moto, triton):
    job = Job(moto, triton, 4000, "expired")
    process = job.start()
    _until(process, lambda: job.commits() >= 5)
    moto.refuse(True)
    _, errors = process.communicate(timeout=TIMEOUT)
    refused = "the store refuses the credentials: 403 Forbidden (InvalidAccessKeyId)"
    assert process.returncode == 1 and refused in errors, errors
    ended = job.command("status", job.output)
    assert ended.returncode == 1 and refused in ended.stderr, ended.stderr
    moto.refuse(False)
    before = job.commits()
    assert 5 <= before < 200
    assert job.run()["scored"] == 4000
    job.check()


def test_credentials_are_no_part_of_a_job(moto, triton):
    job = Job(moto, triton, 40, "secrets")
    settings = json.loads(job.settings.read_text())
    settings["output"] = f"s3://key:hidden@{BUCKET}/out"
    job.settings.write_text(json.dumps(settings))
    process = job.start()
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 64, errors
    assert "come from the environment" in errors and "hidden" not in errors


def _until(process, is_so):
    """Waits for something that a running process does."""
    while not is_so():
        assert process.poll() is None, process.communicate()
