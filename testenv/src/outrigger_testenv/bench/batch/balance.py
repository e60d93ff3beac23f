"""Batch jobs on hosts of which one is slow, or answers wrongly."""

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from outrigger_testenv.bench.batch import job
from outrigger_testenv.bench.batch.hosts import running
from outrigger_testenv.bench.batch.job import Ended
from outrigger_testenv.bench.batch.rows import Rows
from outrigger_testenv.bench.batch.server import MODEL, OUTPUT, Report
from outrigger_testenv.bench.figure import FULL, Effort, Measurement
from outrigger_testenv.bench.setup import Setup

SHARE, TIME, WRONG = "share", "time", "wrong"

_SLOTS, _SERVICE = 8, 0.1
_GOOD = {"slots": [(0, _SLOTS)], "service": _SERVICE}
# Ten times slower than the others.
_SLOW = {**_GOOD, "service": 10 * _SERVICE}
_LIAR = {**_GOOD, "lies": 1 / 3}
_BATCH, _WIDTH = 16, 2
# The requests a second of a good host.
_RATE = _SLOTS / _SERVICE


def seconds(effort: Effort) -> float:
    """The time of a job with an ideal split of its rows."""
    return 30 if effort == FULL else 6


def balance(_: Setup, effort: Effort) -> Measurement:
    """The time of a job on three good hosts and a slow one over that of an ideal split."""
    hosts = {"good-1": _GOOD, "good-2": _GOOD, "good-3": _GOOD, "slow": _SLOW}
    requests = seconds(effort) * (3 + 0.1) * _RATE
    ended, _, reports = _job(hosts, round(requests))
    calls = {name: report.calls for name, report in reports.items()}
    conditions = {"ideal_seconds": seconds(effort), "requests": calls}
    return Measurement([ended.cost.seconds / seconds(effort)], conditions, [ended.raw()])


def liar(value: str, _: Setup, effort: Effort) -> Measurement:
    """A value of a job on two good hosts and one that answers a third of its requests wrongly at
    once: its share of the requests, the time of the job, or the wrong and dead rows.
    """
    values = _liar(seconds(effort))
    return Measurement([values[value]], runs=[values])


@cache
def _liar(duration: float) -> Mapping[str, Any]:
    good = {"good-1": _GOOD, "good-2": _GOOD}
    requests = round(duration * 2 * _RATE)
    alone, _, _ = _job(good, requests)
    ended, wrong, reports = _job({**good, "liar": _LIAR}, requests)
    calls = {name: report.calls for name, report in reports.items()}
    return {
        SHARE: calls["liar"] / ((calls["good-1"] + calls["good-2"]) / 2),
        TIME: ended.cost.seconds / alone.cost.seconds,
        WRONG: wrong,
        "requests": calls,
        "lies": reports["liar"].lies,
        "jobs": [alone.raw(), ended.raw()],
    }


def _job(
    settings: Mapping[str, Mapping[str, Any]], requests: int
) -> tuple[Ended, int, dict[str, Report]]:
    """A job of so many requests, its rows that are dead or wrong, and the reports of its hosts."""
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        directory, rows = Path(name), Rows(requests * _BATCH, _WIDTH)
        source, output = rows.write(directory / "rows.parquet"), directory / "out"
        with running(directory, settings) as hosts:
            endpoints = [host.endpoint for host in hosts.values()]
            given = job.settings(source, output, MODEL, endpoints, batch_size=_BATCH)
            ended = job.run(given)
            reports = {name: host.stop() for name, host in hosts.items()}
        return ended, rows.wrong(output, OUTPUT), reports
