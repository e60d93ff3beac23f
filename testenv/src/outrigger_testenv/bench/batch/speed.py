"""The rows that a batch job scores, beside those of other clients and of a load generator."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from outrigger_testenv.bench.batch import rivals
from outrigger_testenv.bench.batch.cost import Cost
from outrigger_testenv.bench.batch.rivals import BATCH, CONCURRENT, MLSERVER, OUTRIGGER, RAY, Task
from outrigger_testenv.bench.batch.rows import Rows
from outrigger_testenv.bench.figure import FULL, Effort, Failed, Measurement, Skipped
from outrigger_testenv.bench.generator import Side
from outrigger_testenv.bench.generator import run as generate
from outrigger_testenv.bench.oip.front import GRPC, LOAD, turns_of
from outrigger_testenv.bench.oip.served import started
from outrigger_testenv.bench.setup import ONE_FRAME, Setup
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.oip import environments
from outrigger_testenv.oip.models import Served
from outrigger_testenv.oip.peers import Peer, Triton

WIDTH = 64
"""The numbers of a row."""

_MODEL = Served("wide", dimensions=(-1, WIDTH))
_GENERATOR = "generator"
# The rows of the shorter run of each client, whose cost is that of its start, and of the longer
# one: about as many as take the same time.
_ROWS = {
    OUTRIGGER: (50_000, 650_000),
    CONCURRENT: (10_000, 160_000),
    RAY: (10_000, 130_000),
    MLSERVER: (1_000, 11_000),
}


@dataclass(frozen=True)
class Speed:
    """The rows a second, and those a CPU second of the client."""

    rate: float
    by_cpu: float


def by_cpu(rival: str, _: Setup, effort: Effort) -> Measurement:
    """Rows a CPU second of a batch job over those of another client. Raises Skipped if that client
    cannot be installed.
    """
    return _compared(rival, lambda speed: speed.by_cpu, effort)


def rate(_: Setup, effort: Effort) -> Measurement:
    """Rows a second of a batch job over those of a load generator with requests made beforehand."""
    return _compared(_GENERATOR, lambda speed: speed.rate, effort)


def _compared(other: str, value: Callable[[Speed], float], effort: Effort) -> Measurement:
    turns, missing = _turns(effort)
    if other in missing:
        raise Skipped(missing[other])
    for speed in (turn[name] for turn in turns for name in (OUTRIGGER, other)):
        if isinstance(speed, Failed):
            raise speed
    samples = [value(turn[OUTRIGGER]) / value(turn[other]) for turn in turns]
    conditions = {"rows": _rows(effort), "width": WIDTH, "rows_per_request": BATCH}
    return Measurement(samples, conditions, [_raw(turn) for turn in turns])


def _raw(turn: Mapping[str, Speed | Failed]) -> dict[str, Any]:
    return {
        name: {"rows_per_second": speed.rate, "rows_per_cpu_second": speed.by_cpu}
        for name, speed in turn.items()
        if isinstance(speed, Speed)
    }


def _rows(effort: Effort) -> dict[str, tuple[int, int]]:
    share = 1 if effort == FULL else 10
    return {name: (few // share, many // share) for name, (few, many) in _ROWS.items()}


@contextmanager
def triton(directory: Path, *served: Served) -> Iterator[Peer]:
    """A running Triton. Raises Skipped if it cannot be installed."""
    with started(Triton, directory / "triton", served) as peer:
        yield peer


@cache
def _turns(effort: Effort) -> tuple[list[dict[str, Speed | Failed]], dict[str, str]]:
    """One run of all clients by turns, for the figures of all, and the reasons of those that are
    missing. A client that fails does not keep the others from being measured.
    """
    missing = _missing()
    with (
        tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name,
        triton(Path(name), _MODEL) as peer,
    ):
        ways = {OUTRIGGER: rivals.outrigger, **rivals.RIVALS}
        rows = _rows(effort)
        sides = {
            side: partial(_tried, score, rows[side], (Path(name), peer))
            for side, score in ways.items()
            if side not in missing
        }
        sides[_GENERATOR] = partial(_generated, peer, effort)
        turns = in_turns(3 if effort == FULL else 1, *sides.values())
    return [dict(zip(sides, turn, strict=True)) for turn in turns], missing


def _missing() -> dict[str, str]:
    """The clients that cannot be installed."""
    needed = {
        MLSERVER: environments.MLSERVER,
        RAY: environments.RAY,
        CONCURRENT: environments.SCRIPT,
    }
    missing = {}
    for rival, name in needed.items():
        try:
            environments.environment(name)
        except environments.Missing as reason:
            missing[rival] = str(reason)
    return missing


def _tried(
    score: Callable[[Task], Cost], rows: tuple[int, int], at: tuple[Path, Peer]
) -> Speed | Failed:
    """The speed of a client, or its failure."""
    try:
        return _speed(score, rows, at)
    except Failed as failure:
        return failure


def _speed(score: Callable[[Task], Cost], rows: tuple[int, int], at: tuple[Path, Peer]) -> Speed:
    """The speed of a client without its start: what the rows beyond those of a short run cost."""
    few, many = (score(Task(*at, _MODEL.name, Rows(count, WIDTH))) for count in rows)
    more, count = many.beyond(few), rows[1] - rows[0]
    return Speed(count / more.seconds, count / more.cpu)


def _generated(peer: Peer, effort: Effort) -> Speed:
    arguments = ["--server", peer.grpc, "--model", _MODEL.name, "--form", GRPC]
    arguments += ["--input", f"x:FP32:{BATCH},{WIDTH}", "--frame-size", str(ONE_FRAME)]
    report = generate(Side(_GENERATOR, arguments, {}), LOAD, turns_of(effort))
    return Speed(report.throughput * BATCH, BATCH / report.cpu("client"))
