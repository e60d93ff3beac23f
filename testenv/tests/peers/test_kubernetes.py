"""Stage 1, environment: the charts on a real API server, and the Job of a batch job under the real
job controller. Its pods are processes of this machine, which score real files with a real Triton.
"""

import itertools
import json
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outrigger_testenv import tools
from outrigger_testenv.binary import outrigger
from outrigger_testenv.chart.cases import ALL_CASES
from outrigger_testenv.chart.render import BATCH_CHART, NAMESPACE, render
from outrigger_testenv.chart.root import may_mount
from outrigger_testenv.chart.validity import OPERATOR
from outrigger_testenv.kubernetes import program
from outrigger_testenv.kubernetes.client import path_of
from outrigger_testenv.kubernetes.kubelet import Kubelet, index_of
from outrigger_testenv.kubernetes.server import Server
from outrigger_testenv.oip import environments
from outrigger_testenv.oip.models import Served
from outrigger_testenv.oip.peers import Triton
from outrigger_testenv.stack import merge

MODEL = Served("rows", dimensions=(-1, 2))
ROWS, CHUNK_ROWS = 20_000, 200
# Seconds until a job must have an expected condition.
PATIENCE = 180
# Files of an output: one for each chunk, and one for each worker at work.
COMMITS, REPORTS = "commit/[0-9]*.json", "worker/*.json"
ANNOTATION = "batch.kubernetes.io/job-index-"
SECURITY = "pod-security.kubernetes.io/"
# One row at a time, so that the job lasts until it is told otherwise.
SLOW = {"batch_size": 1, "concurrency": 1}
FAST = ("batch_size=256", "concurrency=16")


@pytest.fixture(scope="module")
def cluster():
    """An API server with its job controller."""
    program.needs()
    with Server() as server:
        yield server.client


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    """Triton with a model that returns its input."""
    environments.needs(environments.TRITON)
    with Triton(tmp_path_factory.mktemp("kubernetes") / "triton", (MODEL,)) as server:
        yield server


@pytest.fixture(scope="module")
def volumes(tmp_path_factory):
    """The directories of the claims: rows, and a place that every user may write."""
    directory = tmp_path_factory.mktemp("volumes")
    made = {name: directory / name for name in ("rows", "scores")}
    for each in made.values():
        each.mkdir()
    made["scores"].chmod(0o777)
    x = np.random.default_rng(5).normal(size=(ROWS, 2)).astype(np.float32)
    table = pa.table({"id": range(ROWS), "x": pa.array(list(x))})
    pq.write_table(table, made["rows"] / "a.parquet", row_group_size=CHUNK_ROWS)
    return made


_numbers = itertools.count()


def namespace(client, name):
    """Creates a namespace with the restricted Pod Security Standard."""
    labels = {f"{SECURITY}{each}": "restricted" for each in ("enforce", "warn")}
    content = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    content["metadata"]["labels"] = labels
    client.create("/api/v1/namespaces", content)


@dataclass
class Running:
    """A release of the chart, whose pods run."""

    client: object
    namespace: str
    values: dict
    kubelet: Kubelet
    output: Path

    def install(self, changes=None):
        """Applies the chart's objects; returns the path of the Job."""
        rendered = render(merge(self.values, changes or {}), BATCH_CHART, self.namespace)
        # As Helm does, what pods need comes before them.
        for each in sorted(rendered.objects, key=lambda each: each["kind"] == "Job"):
            self.client.apply(each)
        return path_of(rendered.workload)

    def seen(self, job, look):
        """Waits until `look` finds something in the status of a Job; returns that."""
        collection, name = job.rsplit("/", 1)
        for _, found in self.client.watch(collection, PATIENCE):
            if found["metadata"]["name"] == name and (seen := look(found["status"])) is not None:
                return seen
        raise TimeoutError(f"{job} is still {self.client.get(job)['status']}")

    def condition(self, job, kind):
        """Waits for a condition of a Job; returns it and the Job's status."""

        def look(status):
            for each in status.get("conditions", []):
                if (each["type"], each["status"]) == (kind, "True"):
                    return each, status
            return None

        return self.seen(job, look)

    def wait_for(self, files, count):
        """Waits until the output has so many files of a pattern."""
        deadline = time.monotonic() + PATIENCE
        while len(list(self.output.glob(files))) < count:
            assert time.monotonic() < deadline, f"the output does not have {count} {files}"
            time.sleep(0.02)

    def wait_for_the_workers(self):
        """Waits until all workers have ended: the Job has failed when the first one has."""
        deadline = time.monotonic() + PATIENCE
        while [*self.output.glob("worker/*.json"), *self.output.glob("lease/*.json")]:
            assert time.monotonic() < deadline, "a worker does not end"
            time.sleep(0.02)

    def batch(self, verb, *arguments):
        """Runs a command on the job, as in one of its pods."""
        command = [outrigger(), "batch", verb, self.output, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def rows(self):
        """The rows of the output, in the order of its manifest."""
        manifest = json.loads((self.output / "manifest.json").read_text())
        files = [self.output / chunk["data"]["name"] for chunk in manifest["chunks"]]
        return pa.concat_tables(pq.read_table(file) for file in files)


@pytest.fixture
def release(cluster, triton, volumes, tmp_path):
    """Makes a release that is not installed yet."""
    if not may_mount():
        tools.skip("needs root's rights, to give each pod a root of its own")

    @contextmanager
    def made(hosts=None, **job):
        name = f"batch-{next(_numbers)}"
        namespace(cluster, name)
        values = {
            "image": {"repository": "registry.example/outrigger"},
            "job": {
                "input": "/input/*.parquet",
                "output": f"/output/{name}",
                "model": MODEL.name,
                "hosts": hosts or [triton.grpc, triton.rest],
                "outputs": {"score": "OUT_x"},
                "chunk_rows": CHUNK_ROWS,
                **job,
            },
            "input": {"existingClaim": "rows"},
            "output": {"existingClaim": "scores"},
            "networkPolicy": {"enabled": True},
        }
        with Kubelet(cluster, name, tmp_path / "node", volumes) as kubelet:
            yield Running(cluster, name, values, kubelet, volumes["scores"] / name)

    return made


def assert_whole(running, volumes):
    """Asserts that the output has every row, in the order of the input."""
    found, written = running.rows(), pq.read_table(volumes["rows"] / "a.parquet")
    assert found["id"].to_pylist() == written["id"].to_pylist()
    assert found["score"].to_pylist() == written["x"].to_pylist()


def test_every_object_of_the_charts_is_admitted_without_a_warning(cluster):
    namespace(cluster, NAMESPACE)
    account = {"name": "default", "namespace": NAMESPACE}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    cluster.warnings.clear()
    admitted = 0
    for case in ALL_CASES.values():
        for each in case.rendered.objects:
            # The API server does not have the operator's kinds.
            if each["apiVersion"] != OPERATOR:
                cluster.apply(each, dry_run=True)
                admitted += 1
    assert cluster.warnings == []
    assert admitted > 60


def whole_chunks(running):
    """The names of the commits of whole chunks. Those of parts go once their chunk is whole."""
    return {each.name for each in running.output.glob("commit/*.json") if "-" not in each.name}


def test_pods_that_end_are_replaced_and_the_job_completes(release, triton, volumes):
    # Two hosts are away. By their names, each worker has one of them.
    away = [f"{address}:{triton.ports[2]}" for address in ("127.0.0.2", "127.0.0.3")]
    hosts = [triton.grpc, triton.rest, *away]
    with release(hosts, **SLOW) as running:
        job, kubelet = running.install(), running.kubelet
        first = [kubelet.running(index) for index in (0, 1)]
        running.wait_for(COMMITS, 4)
        running.wait_for(REPORTS, 2)
        running.batch("set", "paused=true")
        workers = json.loads(running.batch("status", "-o", "json"))["workers"]
        used = {frozenset(host["host"] for host in worker["hosts"]) for worker in workers}
        named = sorted(hosts)
        assert used == {frozenset(named[0::2]), frozenset(named[1::2])}
        kubelet.evict(first[1])
        assert kubelet.exit_code(first[1]) == 130
        assert len(list(running.output.glob(REPORTS))) == 1, "it has ended in order"
        kubelet.kill(first[0])
        assert kubelet.exit_code(first[0]) == 128 + 9
        second = [kubelet.running(index, pod["metadata"]["uid"]) for index, pod in enumerate(first)]
        counted = [
            [
                pod["metadata"]["annotations"].get(f"{ANNOTATION}{kind}failure-count", "0")
                for pod in second
            ]
            for kind in ("", "ignored-")
        ]
        assert counted == [["1", "0"], ["0", "1"]], "evictions are not counted as failures"
        running.batch("set", *FAST, "paused=")
        _, status = running.condition(job, "Complete")
        assert not status.get("failedIndexes")
        assert_whole(running, volumes)


def test_an_index_fails_for_good_at_its_limit_and_the_others_go_on(release, volumes):
    with release(**SLOW) as running:
        job, kubelet = running.install({"backoffLimitPerIndex": 1}), running.kubelet
        other, first = (kubelet.running(index) for index in (0, 1))
        running.wait_for(REPORTS, 2)
        kubelet.terminate(first)
        assert kubelet.exit_code(first) == 130
        second = kubelet.running(1, first["metadata"]["uid"])
        assert second["metadata"]["annotations"][f"{ANNOTATION}failure-count"] == "1"
        running.wait_for(REPORTS, 2)
        kubelet.kill(second)
        assert kubelet.exit_code(second) == 128 + 9
        # An empty text before it.
        assert running.seen(job, lambda status: status.get("failedIndexes") or None) == "1"
        committed = len(list(running.output.glob(COMMITS)))
        running.wait_for(COMMITS, committed + 2)
        running.batch("set", *FAST)
        # The job controller looks at failed indexes before it looks at the success policy.
        failed, status = running.condition(job, "Failed")
        assert failed["reason"] == "FailedIndexes"
        assert (status["failedIndexes"], status["completedIndexes"]) == ("1", "0")
        pods = [pod["metadata"]["uid"] for pod in kubelet.pods()]
        expected = [pod["metadata"]["uid"] for pod in (other, first, second)]
        assert sorted(pods) == sorted(expected), "the failed index gets no further pod"
        assert kubelet.exit_code(other) == 0
        assert_whole(running, volumes)
        again = running.install({"backoffLimitPerIndex": 2})
        assert again != job
        running.condition(again, "Complete")


def test_more_failed_indexes_than_are_allowed_end_the_job(release):
    with release(**SLOW) as running:
        limits = {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}
        job, kubelet = running.install(limits), running.kubelet
        other, killed = (kubelet.running(index) for index in (0, 1))
        running.wait_for(REPORTS, 2)
        kubelet.kill(killed)
        failed, status = running.condition(job, "Failed")
        assert failed["reason"] == "MaxFailedIndexesExceeded"
        assert status["failedIndexes"] == "1"
        assert kubelet.exit_code(other) == 130
        assert len(kubelet.pods()) == 2, "none is replaced"


def test_a_job_whose_hosts_are_away_at_its_start_fails_after_its_tries(release, triton):
    # Nothing listens there.
    with release([f"127.0.0.2:{triton.ports[2]}"]) as running:
        job, kubelet = running.install({"backoffLimitPerIndex": 1}), running.kubelet
        failed, status = running.condition(job, "Failed")
        assert (failed["reason"], status["failedIndexes"]) == ("FailedIndexes", "0,1")
        pods = kubelet.pods()
        assert sorted(index_of(pod) for pod in pods) == [0, 0, 1, 1]
        assert {kubelet.exit_code(pod) for pod in pods} == {1}
        assert not running.output.exists()


def test_settings_at_fault_end_the_job_at_once(release):
    with release(model="no-such-model") as running:
        failed, _ = running.condition(running.install(), "Failed")
        assert failed["reason"] == "PodFailurePolicy"
        assert "exit code 64" in failed["message"]
        assert len(running.kubelet.pods()) == 2, "none is replaced"
        assert not running.output.exists()


def test_a_job_that_is_cancelled_goes_on_with_other_settings(release, volumes):
    with release(**SLOW) as running:
        job = running.install()
        running.wait_for(COMMITS, 2)
        running.batch("cancel")
        failed, _ = running.condition(job, "Failed")
        assert (failed["reason"], "exit code 65" in failed["message"]) == ("PodFailurePolicy", True)
        before = len(running.kubelet.pods())
        assert before == 2, "none is replaced"
        running.wait_for_the_workers()
        committed = whole_chunks(running)
        other = running.install({"job": {"batch_size": 256, "concurrency": 16}, "workers": 3})
        assert other != job
        running.condition(other, "Complete")
        assert whole_chunks(running) >= committed
        assert_whole(running, volumes)
