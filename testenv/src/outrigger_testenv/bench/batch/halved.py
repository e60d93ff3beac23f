"""The limit of requests at a real Triton, of whose instances half are away for a while."""

import re
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from outrigger_testenv.bench.batch import job
from outrigger_testenv.bench.batch.limiter import (
    BATCH,
    HALF,
    QUEUE,
    REFUSED,
    ROUND_TRIP,
    SLOTS,
    THROUGHPUT,
    seconds,
)
from outrigger_testenv.bench.batch.rows import Rows
from outrigger_testenv.bench.batch.speed import triton
from outrigger_testenv.bench.figure import Effort, Failed, Measurement
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.oip.models import PLACES, Served
from outrigger_testenv.oip.peers import Triton

_MODEL = Served(PLACES, dimensions=(2,), max_batch_size=BATCH, instances=SLOTS)
# The shortest time of a run, and the time between two looks at the server, in seconds.
_SHORTEST, _LOOK = 0.09, 0.5
_MICROSECONDS = 1e6
_METRIC = re.compile(r"^nv_inference_(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
# Triton's names of the parts of a run; the time in the queue is none of them.
_RUN = tuple(f"compute_{part}_duration_us" for part in ("input", "infer", "output"))


@dataclass(frozen=True)
class Counts:
    """The counters of a model in Triton."""

    # The time at which it was asked, in seconds.
    time: float
    answers: float
    refused: float
    # The time of all answers together in seconds: from the arrival of their requests, and in the
    # model.
    round_trips: float
    running: float

    def since(self, before: "Counts") -> "Counts":
        """The difference to earlier counts."""
        pairs = zip(vars(self).values(), vars(before).values(), strict=True)
        return Counts(*(new - old for new, old in pairs))


def measured(value: str, _: Setup, effort: Effort) -> Measurement:
    """A value of a job on Triton. Raises Skipped if it cannot be installed."""
    found = _job(seconds(effort))
    conditions = {"seconds": seconds(effort), "instances": [SLOTS, HALF, SLOTS], "queue": QUEUE}
    return Measurement([found[value]], conditions, [found])


@cache
def _job(duration: float) -> Mapping[str, float]:
    """The values of a job that would last longer."""
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        directory = Path(name)
        most = round(1.2 * duration * SLOTS / _SHORTEST)
        source = Rows(most * BATCH, 2).write(directory / "rows.parquet")
        with triton(directory, _MODEL) as peer:
            given = job.settings(source, directory / "out", PLACES, [peer.grpc])
            with job.started({**given, "batch_size": BATCH}) as process:
                process.wait_until(lambda: counts(peer).answers > 0)
                looks, places = _watched(peer, duration)
                if not process.running:
                    raise Failed("the job has ended too early")
    return values(looks, places)


def _watched(peer: Triton, duration: float) -> tuple[list[Counts], float]:
    """Looks at the server while the number of its instances changes; returns the looks, and the
    time of all instances together between the first one and the last one, in seconds.
    """
    looks, places, running = [counts(peer)], 0.0, SLOTS

    def look() -> None:
        nonlocal places
        looks.append(counts(peer))
        places += running * (looks[-1].time - looks[-2].time)

    for third, instances in enumerate((SLOTS, HALF, SLOTS), 1):
        if instances != running:
            peer.resize(_MODEL, instances)
            look()
            running = instances
        while looks[-1].time < looks[0].time + duration * third / 3:
            time.sleep(_LOOK)
            look()
    return looks, places


def counts(peer: Triton) -> Counts:
    """The counts of Triton's only model."""
    with urllib.request.urlopen(f"http://127.0.0.1:{peer.ports[2]}/metrics", timeout=5) as answer:
        found = _METRIC.findall(answer.read().decode())
    of: Counter[str] = Counter()
    for name, labels, value in found:
        if name != "request_failure" or "REJECTED" in labels:
            of[name] += float(value)
    return Counts(
        time.monotonic(),
        of["request_success"],
        of["request_failure"],
        of["request_duration_us"] / _MICROSECONDS,
        sum(of[name] for name in _RUN) / _MICROSECONDS,
    )


def values(looks: Sequence[Counts], places: float) -> dict[str, float]:
    """The values of a job from looks at its host; `places` is the time of all instances together,
    in seconds. Raises Failed if nothing was answered.
    """
    total = looks[-1].since(looks[0])
    if not total.answers:
        raise Failed("the host has answered nothing")
    parts = [part for part in map(Counts.since, looks[1:], looks) if part.answers]
    means = [part.round_trips / part.answers for part in parts]
    median = float(np.median(np.repeat(means, [round(part.answers) for part in parts])))
    return {
        THROUGHPUT: total.running / places,
        REFUSED: 100 * total.refused / (total.answers + total.refused),
        ROUND_TRIP: median / (total.running / total.answers),
    }
