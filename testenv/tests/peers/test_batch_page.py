"""The status page of a batch job in a real browser, and its metrics in a real Prometheus, while the
job scores rows through the control plane's own front. Screenshots are kept.
"""

import fcntl
import json
import os
import re
import struct
import subprocess
import termios
from contextlib import suppress

import pandas as pd
import pytest

from outrigger_testenv import monitoring
from outrigger_testenv.batch_jobs import TOKEN, BatchJob
from outrigger_testenv.binary import repository
from outrigger_testenv.browser import Browser
from outrigger_testenv.chart import prometheus
from outrigger_testenv.processes import free_ports

MODEL = "batch/tiny"
PICTURES = repository() / "testenv" / "build" / "ui"
DESKTOP, PHONE = (1240, 900), (360, 740)
# With one row in a request and one request in flight, the job lasts longer than its test.
SLOW = {"batch_size": 1, "concurrency": 1, "chunk_rows": 200}
ROWS, DEAD_ROW = 200_000, 3
BOARD = prometheus.MONITORING / "batch-dashboard.json"


@pytest.fixture
def host(own_stack, tiny):
    """The address of a front whose model scores rows of tables."""
    (port,) = free_ports(1)
    models = [{"name": MODEL, "view": "features"}]
    stack = own_stack(overrides={"server": {"oip": f"127.0.0.1:{port}"}}, models=models)
    stack.push(tiny(4), MODEL)
    stack.client().load(MODEL)
    return f"127.0.0.1:{port}"


def described(host, directory, count):
    """A slow job with a row that cannot be scored."""
    rows = pd.DataFrame({"id": range(count), "age": 30.0, "price": 1.0})
    rows.loc[DEAD_ROW, "price"] = None
    rows.to_parquet(directory / "rows.parquet")
    settings = {
        "input": str(directory / "rows.parquet"),
        "model": MODEL,
        "hosts": host,
        "keys": ["id"],
        **SLOW,
    }
    return BatchJob(directory, settings)


@pytest.fixture
def job(host, tmp_path):
    """A job that runs."""
    with described(host, tmp_path, ROWS) as running:
        yield running


@pytest.fixture
def page(tmp_path):
    """A browser's page; errors in it fail the test."""
    with Browser(tmp_path / "browser") as page:
        page.resize(*DESKTOP)
        page.prefer("light")
        yield page
        assert not page.complaints, page.complaints


def look(page, job):
    """Opens the page, and waits until it shows a job that runs."""
    page.open(job.page)
    page.wait_for("document.querySelector('#live').dataset.state === 'live'")
    page.wait_for("document.querySelector('#tiles').innerText.includes('running')")


def write(page, field, text):
    """Replaces the text of a field."""
    page.click(f"#{field}")
    page.run(f"document.querySelector('#{field}').select()")
    page.type(text)


def told(page, part):
    """Waits until the page tells this about a change."""
    page.wait_for(f"document.querySelector('#told').innerText.includes({json.dumps(part)})")


@pytest.mark.needs("chromium")
def test_the_page_shows_the_job_and_why_each_host_has_its_limit(job, host, page):
    look(page, job)
    page.wait_for("document.querySelector('[data-host] .rate').innerText !== '0'")
    row = page.text(f"[data-host='{host}']")
    assert "in use" in row and re.search(r"\d of 1\b", row), row
    page.wait_for("document.querySelector('.bound').dataset.bound === 'user'")
    assert "the setting concurrency or rows_per_second" in page.text(".bound")
    page.wait_for("document.querySelector('.plot .line')")
    label = page.run("document.querySelector('.plot').getAttribute('aria-label')")
    assert re.match(r"Rows a second over .+: [\d.]+", label), label
    page.wait_for("document.querySelector('#letters tbody tr')")
    letter = page.text("#letters tbody tr")
    assert "rows.parquet · 3" in letter and "invalid input" in letter and "never sent" in letter
    page.wait_for("document.querySelector('#runs tbody tr')?.innerText.includes('at work')")
    tiles = page.text("#tiles")
    assert MODEL in tiles and "1 worker" in tiles and "1 dead letter" in tiles
    assert "of 200,000" in tiles and "left at this rate" in tiles and "in flight" in tiles
    page.screenshot(PICTURES / "batch-light.png")
    page.prefer("dark")
    page.screenshot(PICTURES / "batch-dark.png")
    page.resize(*PHONE, phone=True)
    assert page.run("document.documentElement.scrollWidth") <= PHONE[0]
    page.screenshot(PICTURES / "batch-phone.png")
    hosts = {url.split("/")[2] for url in page.requests if url.startswith("http")}
    assert hosts == {job.address}


@pytest.mark.needs("chromium")
def test_settings_are_changed_with_the_token_and_not_without(job, page):
    look(page, job)
    write(page, "batch_size", "64")
    write(page, "token", "another-token-of-16")
    page.click("#apply")
    told(page, "not the token")
    # The browser logs the refusal.
    page.complaints.clear()
    assert job.status()["control"] == {"paused": False, "cancelled": False}
    write(page, "token", TOKEN)
    page.click("#apply")
    told(page, "Applied.")
    assert job.status()["control"]["batch_size"] == 64
    write(page, "hosts_setting", "a host")
    page.click("#apply")
    told(page, "hosts: a host")
    page.complaints.clear()
    write(page, "hosts_setting", "")
    page.click("#pause")
    page.wait_for("document.querySelector('#tiles').innerText.includes('paused')")
    page.wait_for("document.querySelector('#tiles').innerText.includes('0 requests in flight')")
    page.screenshot(PICTURES / "batch-paused-light.png")
    # A change from elsewhere is shown too.
    job.run("set", "concurrency=2")
    page.wait_for("document.querySelector('#concurrency').value === '2'")
    page.click("#pause")
    page.wait_for("document.querySelector('#tiles').innerText.includes('running')")
    page.click("#cancel")
    assert page.text("#cancel") == "Click again to cancel"
    page.click("#cancel")
    job.process.wait_until_ended()
    assert job.process.exit_code == 65
    assert "the job was cancelled" in job.process.log.read_text()
    page.wait_for("document.querySelector('#live').dataset.state === 'lost'")
    assert "rows.parquet" in page.text("#letters"), "what was known stays to be seen"
    page.complaints.clear()
    # The history and the counts outlive the worker.
    status = job.status()
    (run,) = status["runs"]
    assert status["state"] == "stopped" and status["workers"] == []
    assert sum(status["history"]["rows"]) == run["rows"] >= status["scored"] > 0
    assert "rows a second" in job.run("status")


def test_a_terminal_shows_the_progress_and_a_plot_at_the_end(host, tmp_path):
    job = described(host, tmp_path, 3000)
    terminal, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 90, 0, 0))
    with subprocess.Popen(job.command, stdout=subprocess.PIPE, stderr=end, text=True) as process:
        os.close(end)
        shown = drained(terminal)
        printed = process.stdout.read()
    assert process.returncode == 0, shown
    assert re.search(r"[\d,]+ of 3,000 rows \([\d.]+ %\), 1 dead", shown), shown
    assert re.search(rf"{host}: \d+ rows/s, [01] of 1 requests \(.+\)", shown), shown
    assert "2999 of 3000 rows scored, 1 dead" in printed
    _, _, plot = printed.partition("rows a second\n")
    assert "█" in plot and max(map(len, plot.splitlines())) <= 90, printed


def drained(terminal):
    """All that is written to a terminal until its last writer has gone."""
    written = b""
    # Linux reports the end of a terminal as an error.
    with suppress(OSError), open(terminal, "rb", buffering=0) as reader:
        while part := reader.read(4096):
            written += part
    return written.decode()


@pytest.mark.needs("chromium")
def test_a_name_that_resolves_to_the_listener_is_another_site(job, tmp_path):
    with Browser(tmp_path / "browser") as page:
        # Chromium resolves every name below localhost to loopback.
        port = job.address.rsplit(":", 1)[1]
        page.open(f"http://evil.localhost:{port}/ui")
        assert "PERMISSION_DENIED" in page.text()


@pytest.mark.needs("prometheus")
def test_prometheus_answers_the_queries_of_the_dashboard(job, host, tmp_path):
    target = monitoring.Prometheus(tmp_path / "prometheus", free_ports(1)[0], job.address)
    with target as watched:
        watched.wait_for("outrigger_batch_rows", ROWS)
        watched.wait_for(f'outrigger_batch_host_limit{{host="{host}"}}', 1)
        watched.wait_for('outrigger_batch_rows_dead_total{reason="invalid_input"}', 1)
        watched.wait_for("(outrigger_batch_chunks_committed_total > bool 1) * 1", 1)
        assert watched.value(f'outrigger_batch_calls_total{{host="{host}",end="scored"}}') > 0
        assert watched.value('outrigger_batch_calls_total{end="lost"}') == 0
        assert watched.query(f'outrigger_batch_info{{model="{MODEL}",output="{job.output}"}} == 1')
        limit = watched.value("outrigger_batch_memory_limit_bytes")
        assert 0 < watched.value("outrigger_batch_memory_peak_bytes") <= limit <= 512 << 20
        assert watched.value("outrigger_batch_writers_blocked_seconds_total") >= 0
        assert watched.value("outrigger_batch_rows_read_total") > 0
        # rate() needs two samples.
        watched.wait_for("rate(outrigger_batch_rows_scored_total[5m]) > bool 0", 1)
        board = json.loads(BOARD.read_text())
        for query in prometheus.dashboard_queries(board):
            known = query.replace("some-namespace", "").replace("some-job", "outrigger")
            assert watched.query(known.replace("some-pod", ".*")), query
