"""The limit of requests at a host whose capacity is halved for a while, in virtual time and real;
and random jobs in virtual time.
"""

import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import median

from outrigger_testenv.bench import canary
from outrigger_testenv.bench.batch import job
from outrigger_testenv.bench.batch.hosts import Host, running
from outrigger_testenv.bench.batch.rows import Rows
from outrigger_testenv.bench.batch.server import MODEL
from outrigger_testenv.bench.figure import FULL, Effort, Failed, Measurement
from outrigger_testenv.bench.programs import DISPATCH, output_of
from outrigger_testenv.bench.setup import Setup

THROUGHPUT, REFUSED, ROUND_TRIP = VALUES = ("throughput", "refused", "round-trip")

# The places of the host, those in the middle third, and the requests that may wait.
SLOTS, HALF, QUEUE = 8, 4, 16
BATCH = 16
_SERVICE = 0.1


def seconds(effort: Effort) -> float:
    """The time that is measured on the real host."""
    return 120 if effort == FULL else 12


def simulated(value: str, setup: Setup, _: Effort) -> Measurement:
    """A value of the simulation in virtual time: the worse one of a host with a short queue and one
    without a limit of its queue.
    """
    output = _simulation(setup.programs[DISPATCH])
    values = canary.values(f"batch-limiter-simulated-{value}", output)
    worst = min(values) if value == THROUGHPUT else max(values)
    return Measurement([worst], runs=[{"queues": values}])


def standstills(setup: Setup, effort: Effort) -> Measurement:
    """The random jobs in virtual time that come to a standstill, or settle a row twice."""
    jobs = 10_000 if effort == FULL else 200
    output = output_of(setup.programs[DISPATCH], str(jobs))
    return Measurement([canary.value("batch-deadlock", output)], {"jobs": jobs})


def measured(value: str, _: Setup, effort: Effort) -> Measurement:
    """A value of a job on a real host."""
    values = _job(seconds(effort))
    conditions = {"seconds": seconds(effort), "slots": [SLOTS, HALF, SLOTS], "queue": QUEUE}
    return Measurement([values[value]], conditions, [values])


@cache
def _simulation(program: Path) -> str:
    return output_of(program)


@cache
def _job(duration: float) -> Mapping[str, float]:
    """The values of a job that would last longer."""
    slots = [(0, SLOTS), (duration / 3, HALF), (2 * duration / 3, SLOTS)]
    settings = {"slots": slots, "queue": QUEUE, "service": _SERVICE, "until": duration}
    possible = duration / 3 * (2 * SLOTS + HALF) / _SERVICE
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        directory = Path(name)
        source = Rows(round(1.2 * possible) * BATCH, 2).write(directory / "rows.parquet")
        with running(directory, {"host": settings}) as hosts:
            (host,) = hosts.values()
            given = job.settings(source, directory / "out", MODEL, [host.endpoint])
            with job.started({**given, "batch_size": BATCH}) as process:
                process.wait_until(lambda: _is_over(host, duration), 2 * duration)
            report = host.stop()
    if not report.round_trips:
        raise Failed("the host has answered nothing")
    return {
        THROUGHPUT: report.scored / possible,
        REFUSED: 100 * report.refused / report.calls,
        ROUND_TRIP: median(report.round_trips) / _SERVICE,
    }


def _is_over(host: Host, duration: float) -> bool:
    """True if the first request was so long ago."""
    first = host.first()
    return first is not None and time.time() - first > duration
