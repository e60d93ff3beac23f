"""Runs a case turn by turn, against the control plane and against a program that discards."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from outrigger_testenv.attack.broken import Broken, Late
from outrigger_testenv.attack.case import MIB, TURNS, Act, Case, Row, Turn
from outrigger_testenv.attack.memory import Peak
from outrigger_testenv.attack.neighbour import Report
from outrigger_testenv.attack.probes import Probes
from outrigger_testenv.attack.scene import Scene
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.stack import Stack

# Bytes of memory.
PEAK = 300_000_000
RATIO = 2.0
# How many times as many further turns count with those of a case beyond that bound.
_FURTHER = 2
# The bound of cases that are not defended.
_UNDEFENDED = 20.0
# Where the baseline's 99th percentiles differ by more than this factor, medians are compared.
STEADY = 2.0
# One probe in a hundred may take longer than a second.
SLOW_SHARE = 0.01


@dataclass(frozen=True)
class Effort:
    """The number of turns and their seconds, and the neighbour's requests a second; whether times
    are measured at all; and the bound of memory, bytes.
    """

    turns: int
    seconds: float
    rate: int = 400
    times: bool = True
    peak: int = PEAK


FULL = Effort(TURNS, 2.0)
QUICK = Effort(1, 2.0)
# For tests: no time is judged, and few requests are sent, so nothing that a busy machine can break.
# Cases follow each other in seconds, and freed memory stays with the process for ten, so a peak has
# that of the cases before too (388 MiB was seen). The bound is `server.memory`.
UNTIMED = Effort(1, 1.5, rate=20, times=False, peak=512 * MIB)


def run(case: Case, scene: Scene, effort: Effort) -> Row:
    """Runs a case; an attack that breaks a bound is a row too."""
    row = Row(case)
    effort = replace(effort, turns=min(effort.turns, case.turns))
    stack = None
    with _recorded(row):
        stack = case.stack(scene)
        _attacked(row, scene, stack, effort)
    if stack and row.broken:
        with _recorded(row):
            scene.fresh(stack)
    return row


@contextmanager
def _recorded(row: Row) -> Iterator[None]:
    """Records an error: a process that ends or hangs under an attack must not hide other cases."""
    try:
        yield
    except Late as late:
        row.late.append(str(late))
    except Broken as broken:
        row.broken.append(str(broken))
    except Exception as error:
        first, _, _ = str(error).partition("\n")
        row.broken.append(f"{type(error).__name__}: {first}")


def _attacked(row: Row, scene: Scene, stack: Stack, effort: Effort) -> None:
    process = stack.serve.process
    scene.level(process)
    before = process.log.stat().st_size
    with Peak(process) as peak, _recorded(row):
        _turns(row, scene, effort)
    row.peak = peak.bytes
    if b"panicked at" in process.log.read_bytes()[before:]:
        row.broken.append("the control plane panicked")
    _check(row, peak.stopped, effort)


def _turns(row: Row, scene: Scene, effort: Effort) -> None:
    case = row.case
    if case.prepare:
        for number in range(effort.turns):
            case.prepare(scene, number)
    attacks, baselines = itertools.count(), itertools.count()

    def attacked() -> Report | None:
        return _probed(row, scene, Turn(next(attacks), effort.seconds, effort.rate))

    def unharmed() -> Report | None:
        turn = Turn(next(baselines), effort.seconds, effort.rate)
        return _beside(scene, turn, case.baseline, case)[0]

    if case.baseline is None or not effort.times:
        in_turns(effort.turns, attacked)
    else:
        rounds = in_turns(effort.turns, attacked, unharmed)
        row.ratio, row.quantile = compared(rounds)
        if row.ratio > RATIO and case.repeats:
            # A single delay decides few turns.
            rounds += in_turns(_FURTHER * effort.turns, attacked, unharmed)
            row.ratio, row.quantile = compared(rounds)


def compared(rounds: list[tuple[Report, Report]]) -> tuple[float, str]:
    """The median of the turns' ratios, and the quantile of latency that is compared."""
    baselines = [baseline.p99 for _, baseline in rounds]
    quantile = "p99" if max(baselines) <= STEADY * min(baselines) else "p50"
    ratios = [
        getattr(attacked, quantile) / max(getattr(baseline, quantile), 1e-3)
        for attacked, baseline in rounds
    ]
    return float(np.median(ratios)), quantile


def _probed(row: Row, scene: Scene, turn: Turn) -> Report | None:
    case = row.case
    probes = Probes(scene.address("health", case.stack(scene)), case.probes)
    try:
        with probes:
            report, row.outcome = _beside(scene, turn, case.attack, case)
    finally:
        row.probes += len(probes.seconds)
        row.probes_failed += probes.failed
        row.probes_slow += probes.slow
    if report and report.failures:
        raise Broken(f"the neighbour's requests failed: {report.failures}")
    return report


def _beside(scene: Scene, turn: Turn, act: Act, case: Case) -> tuple[Report | None, str]:
    """Acts while the neighbour predicts."""
    with ThreadPoolExecutor(1) as threads:
        beside = threads.submit(_measured, scene, turn, case)
        outcome = act(scene, turn)
        return beside.result(), outcome


def _measured(scene: Scene, turn: Turn, case: Case) -> Report | None:
    try:
        return case.neighbour(scene, turn) if case.neighbour else None
    finally:
        turn.over.set()


def _check(row: Row, stopped: bool, effort: Effort) -> None:
    if stopped:
        row.broken.append("the control plane was killed for its memory")
    if row.peak > effort.peak:
        row.broken.append(f"a peak of {row.peak // MIB} MiB instead of {effort.peak // MIB}")
    if not effort.times:
        return
    if row.ratio is not None and row.ratio > RATIO:
        bounds = row.broken if row.ratio > _UNDEFENDED else row.late
        bounds.append(f"the neighbour's {row.quantile} is {row.ratio:.1f} times the baseline")
    if row.probes_failed:
        row.broken.append(f"{row.probes_failed} of {row.probes} probes failed")
    if row.probes_slow > SLOW_SHARE * row.probes:
        row.broken.append(f"{row.probes_slow} of {row.probes} probes took over 1 s")
