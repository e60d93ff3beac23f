"""Stage 1, environment: the figures of batch jobs watch the real binary, and see what it does."""

import pytest

from outrigger_testenv.bench.batch import balance, halved, job, limiter, resume
from outrigger_testenv.bench.batch.hosts import running
from outrigger_testenv.bench.batch.rows import Rows
from outrigger_testenv.bench.batch.server import MODEL, OUTPUT
from outrigger_testenv.bench.figure import QUICK, Failed
from outrigger_testenv.oip import environments


@pytest.fixture
def host(tmp_path):
    """A host of 8 places of 50 ms."""
    with running(tmp_path, {"host": {"service": 0.05}}) as hosts:
        yield hosts["host"]


def _settings(tmp_path, host, rows, **keys):
    source = rows.write(tmp_path / "rows.parquet")
    return job.settings(source, tmp_path / "out", MODEL, [host.endpoint], **keys)


def test_a_job_is_watched_to_its_end(host, tmp_path):
    rows = Rows(4000, 2)
    ended = job.run(_settings(tmp_path, host, rows, batch_size=8))
    assert (ended.summary["scored"], ended.summary["dead"]) == (4000, 0)
    assert rows.wrong(tmp_path / "out", OUTPUT) == 0
    # The calls take three seconds, so there was a report.
    assert 0 < ended.seen.report["memory_peak"] < ended.seen.resident
    assert ended.cost.cpu > 0 and ended.cost.seconds >= 3
    # The first answer, before the plan, is one more call.
    assert host.stop().rows >= 4000


def test_settings_of_a_job_are_changed_while_it_runs(host, tmp_path):
    settings = _settings(tmp_path, host, Rows(100_000, 2), batch_size=8)

    def limits():
        report = job.report(tmp_path / "out") or {"hosts": []}
        return [host["limit"] for host in report["hosts"]]

    with job.started(settings) as process:
        # The limit of a new host is low at first.
        process.wait_until(lambda: limits() > [1])
        job.change(tmp_path / "out", "concurrency=1")
        process.wait_until(lambda: limits() == [1])
        with pytest.raises(Failed, match="batch set"):
            job.change(tmp_path / "out", "concurrency=none")
    assert not process.running


def test_lies_are_counted_and_leave_no_wrong_row():
    values = balance._liar(1.0)
    assert values[balance.WRONG] == 0
    assert 0 < values["lies"] < values["requests"]["liar"]
    assert values[balance.SHARE] > 0 and values[balance.TIME] > 0


def test_a_job_goes_on_while_triton_has_half_of_its_instances():
    environments.needs(environments.TRITON)
    found = halved._job(6.0)
    assert 0 < found[limiter.THROUGHPUT] < 1.2
    assert found[limiter.ROUND_TRIP] >= 1
    assert 0 <= found[limiter.REFUSED] < 100


def test_a_job_goes_on_behind_commits_that_were_made_for_it():
    samples = resume.first_request(None, QUICK).samples
    assert len(samples) == 3 and all(0 < each < 30 for each in samples)
