"""The memory of a batch job whose answers are large, and the time that its writers take."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from outrigger_testenv.bench.batch import job
from outrigger_testenv.bench.batch.hosts import running
from outrigger_testenv.bench.batch.job import Ended
from outrigger_testenv.bench.batch.rows import Rows
from outrigger_testenv.bench.batch.server import MODEL
from outrigger_testenv.bench.figure import FULL, Effort, Failed, Measurement, Skipped
from outrigger_testenv.bench.setup import Setup

MEMORY = 512
"""The memory of the job, MiB."""

_MEBIBYTE = 1 << 20
# The numbers of an answer of 1 MiB.
_WIDTH = _MEBIBYTE // 4
# A host that answers faster than any writer, which gets as many rows a request as the job makes of
# its memory, and one that answers 64 rows a second, 4 a request.
_FAST = {"slots": [(0, 64)], "service": 0.02, "answer_width": _WIDTH}
_PACED = {"slots": [(0, 8)], "service": 0.5, "answer_width": _WIDTH}
_PACED_BATCH = 4
# The key of a worker's report with the seconds for which its writers held it up.
_BLOCKED = "blocked_seconds"


def buffers(_: Setup, effort: Effort) -> Measurement:
    """The most memory for rows, requests and answers, as the job reports it; MiB."""

    def reported(ended: Ended) -> float:
        if "memory_peak" not in ended.seen.report:
            raise Failed("the job ended before its first report")
        return ended.seen.report["memory_peak"]

    return _of(reported, effort)


def resident(_: Setup, effort: Effort) -> Measurement:
    """The peak of the job's resident memory; MiB."""
    return _of(lambda ended: ended.seen.resident, effort)


def blocked(is_paced: bool, _: Setup, effort: Effort) -> Measurement:
    """The share of the time in which the job waited for its writers, percent: of a job whose host
    answers 64 rows a second, or of one whose host answers faster than any writer. Raises Skipped
    if this version does not report it.
    """
    ended = _job(False, 1280 if effort == FULL else 256) if is_paced else _fast(effort)
    if _BLOCKED not in ended.seen.report:
        raise Skipped("the job does not report the time for which its writers held it up")
    share = 100 * ended.seen.report[_BLOCKED] / ended.summary["seconds"]
    rate = ended.summary["rows"] / ended.summary["seconds"]
    return Measurement([share], {"answers_per_second": round(rate)}, [ended.raw()])


def _of(value: Callable[[Ended], float], effort: Effort) -> Measurement:
    ended = _fast(effort)
    conditions = {"memory": f"{MEMORY}MiB", "rows": ended.summary["rows"]}
    return Measurement([value(ended) / _MEBIBYTE], conditions, [ended.raw()])


def _fast(effort: Effort) -> Ended:
    return _job(True, 3000 if effort == FULL else 1200)


@cache
def _job(is_fast: bool, count: int) -> Ended:
    """A job over this many rows, each with an answer of 1 MiB."""
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        directory = Path(name)
        source = Rows(count, 2).write(directory / "rows.parquet")
        with running(directory, {"host": _FAST if is_fast else _PACED}) as hosts:
            (host,) = hosts.values()
            settings = job.settings(
                source, directory / "out", MODEL, [host.endpoint], memory=f"{MEMORY}MiB"
            )
            return job.run(settings if is_fast else {**settings, "batch_size": _PACED_BATCH})
