"""A long batch job whose hosts end and start again, and whose settings change."""

import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from outrigger_testenv.bench.batch import job
from outrigger_testenv.bench.batch.hosts import Host, running
from outrigger_testenv.bench.batch.rows import Rows
from outrigger_testenv.bench.batch.server import MODEL, OUTPUT
from outrigger_testenv.bench.figure import FULL, Effort, Failed, Measurement
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.processes import Process, resident

_HOST = {"slots": [(0, 8)], "service": 0.1}
_HOSTS = 3
_BATCH, _WIDTH = 64, 2
# The rows of the job, as a share of those that all hosts could score in its time: hosts are away,
# and are not fully used under some of the settings.
_SHARE = 0.8
# The settings that are drawn.
_BATCHES, _CONCURRENCIES = (32, 64, 96), (6, 8, 16, 64)
# The most time between two ends of a host, the time until it starts again, and that between two
# changes of settings; seconds. A short job has ten ends.
_KILLED, _ENDS, _AWAY, _CHANGED = 20.0, 10, 2.0, 5.0
# The time between two looks at the memory, seconds.
_LOOK = 1.0


@dataclass(frozen=True)
class _Course:
    """The course of a job: its memory in bytes each second, the ends of hosts and the changes of
    settings, and the rows that are wrong, dead or missing.
    """

    memory: Sequence[int]
    kills: int
    changes: int
    lost: int


def seconds(effort: Effort) -> float:
    """About the time of the job."""
    return 1800 if effort == FULL else 45


def memory(_: Setup, effort: Effort) -> Measurement:
    """The memory of the job in its last third over that in its second third."""
    course = _course(seconds(effort))
    third = len(course.memory) // 3
    growth = mean(course.memory[-third:]) / mean(course.memory[third : 2 * third])
    return Measurement([growth], *_details(course))


def lost(_: Setup, effort: Effort) -> Measurement:
    """The rows that are wrong, dead or missing at the end."""
    course = _course(seconds(effort))
    return Measurement([course.lost], *_details(course))


def _details(course: _Course) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    return {"kills": course.kills, "changes": course.changes}, [{"memory": course.memory}]


@cache
def _course(duration: float) -> _Course:
    requests = duration * _SHARE * _HOSTS * 8 / 0.1
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        directory, rows = Path(name), Rows(round(requests * _BATCH), _WIDTH)
        source, output = rows.write(directory / "rows.parquet"), directory / "out"
        with running(directory, {f"host-{at}": _HOST for at in range(_HOSTS)}) as hosts:
            endpoints = [host.endpoint for host in hosts.values()]
            given = job.settings(source, output, MODEL, endpoints, batch_size=_BATCH)
            with job.started(given) as process:
                job.wait_for_scores(process, output)
                course = _disturbed(process, output, list(hosts.values()), duration)
        if process.exit_code != 0:
            raise Failed(f"the job ended with {process.exit_code}{process.tail()}")
        memory, kills, changes = course
        return _Course(memory, kills, changes, rows.wrong(output, OUTPUT))


def _disturbed(
    process: Process, output: Path, hosts: Sequence[Host], duration: float
) -> tuple[list[int], int, int]:
    """Ends and starts hosts and changes settings until the job ends. Returns its memory each
    second, the number of ends and that of changes.
    """
    draw, memory, away = random.Random(1), [], {}
    kills = changes = 0
    interval, began = min(_KILLED, duration / _ENDS), time.monotonic()
    while process.running:
        now = time.monotonic() - began
        if now > 4 * duration:
            raise Failed("the job does not end")
        memory.append(resident(process.pid or 0, "RssAnon"))
        for host in [host for host, since in away.items() if now - since >= _AWAY]:
            del away[host]
            host.start()
        if now >= (kills + 1) * interval and not away:
            host = draw.choice(hosts)
            host.process.kill()
            away[host] = now
            kills += 1
        if now >= (changes + 1) * _CHANGED:
            batch, concurrency = draw.choice(_BATCHES), draw.choice(_CONCURRENCIES)
            job.change(output, f"batch_size={batch}", f"concurrency={concurrency}")
            changes += 1
        time.sleep(_LOOK)
    return [each for each in memory if each], kills, changes
