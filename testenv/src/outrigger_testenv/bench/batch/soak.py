"""A long batch job whose hosts end and start again, whose settings change, and whose output is in a
store that is away for a while.
"""

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
from outrigger_testenv.bench.figure import FULL, Effort, Failed, Measurement, Skipped
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.pinned import Missing
from outrigger_testenv.processes import Process, resident
from outrigger_testenv.stores.servers import BUCKET, Moto

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
# When the store goes away, as shares of the time of the job, and the share for which it is away:
# once in each of the parts whose memory is compared.
_OUTAGES, _OUTAGE = (1 / 2, 5 / 6), 1 / 30
# The time between two looks at the memory, seconds.
_LOOK = 1.0


@dataclass(frozen=True)
class _Course:
    """The course of a job: its memory in bytes each second, the ends of hosts, the changes of
    settings and the outages of its store, and the rows that are wrong, dead or missing.
    """

    memory: Sequence[int]
    kills: int
    changes: int
    outages: int
    lost: int


def seconds(effort: Effort) -> float:
    """About the time of the job."""
    return 1800 if effort == FULL else 45


def memory(_: Setup, effort: Effort) -> Measurement:
    """The memory of the job in its last third over that in its second third. Raises Skipped if the
    store cannot be installed.
    """
    course = _course(seconds(effort))
    third = len(course.memory) // 3
    growth = mean(course.memory[-third:]) / mean(course.memory[third : 2 * third])
    return Measurement([growth], *_details(course))


def lost(_: Setup, effort: Effort) -> Measurement:
    """The rows that are wrong, dead or missing at the end. Raises Skipped as `memory`."""
    course = _course(seconds(effort))
    return Measurement([course.lost], *_details(course))


def _details(course: _Course) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    events = {"kills": course.kills, "changes": course.changes, "outages": course.outages}
    return events, [{"memory": course.memory}]


@cache
def _course(duration: float) -> _Course:
    requests = duration * _SHARE * _HOSTS * 8 / 0.1
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        directory, rows = Path(name), Rows(round(requests * _BATCH), _WIDTH)
        source = rows.write(directory / "rows.parquet")
        hosts = {f"host-{at}": _HOST for at in range(_HOSTS)}
        with _store(directory / "store") as store, running(directory, hosts) as processes:
            output = f"{store.root}/out"
            endpoints = [host.endpoint for host in processes.values()]
            given = job.settings(source, output, MODEL, endpoints, batch_size=_BATCH)
            with job.started(given, directory / "out", store.environment) as process:
                _wait_for_plan(process, store)
                seen = _disturbed(process, store, list(processes.values()), duration)
            if process.exit_code != 0:
                raise Failed(f"the job ended with {process.exit_code}{process.tail()}")
            return _Course(**seen, lost=rows.wrong(f"{BUCKET}/out", OUTPUT, store.files()))


def _store(directory: Path) -> Moto:
    try:
        Moto.PINNED.directory()
    except Missing as reason:
        raise Skipped(str(reason)) from reason
    return Moto(directory)


def _wait_for_plan(process: Process, store: Moto) -> None:
    """Waits until the settings of a job can change."""
    files = store.files()
    process.wait_until(lambda: files.get_file_info(f"{BUCKET}/out/plan.json").is_file)


def _disturbed(
    process: Process, store: Moto, hosts: Sequence[Host], duration: float
) -> dict[str, Any]:
    """Ends and starts hosts, changes settings, and cuts the way to the store, until the job ends.
    Returns its memory each second, and the numbers of all three.
    """
    draw, memory, away = random.Random(1), [], {}
    kills = changes = outages = 0
    store_is_away = False
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
        if any(at <= now / duration < at + _OUTAGE for at in _OUTAGES) != store_is_away:
            store_is_away = not store_is_away
            if store_is_away:
                store.relay.cut()
                outages += 1
            else:
                store.relay.mend()
        if now >= (changes + 1) * _CHANGED and not store_is_away:
            batch, concurrency = draw.choice(_BATCHES), draw.choice(_CONCURRENCIES)
            settings = (f"batch_size={batch}", f"concurrency={concurrency}")
            job.change(f"{store.root}/out", *settings, environment=store.environment)
            changes += 1
        time.sleep(_LOOK)
    present = [each for each in memory if each]
    return {"memory": present, "kills": kills, "changes": changes, "outages": outages}
