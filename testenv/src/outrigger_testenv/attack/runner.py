"""Runs a case turn by turn, against the control plane and against a program that discards."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import MIB, TURNS, Act, Case, Row, Turn
from outrigger_testenv.attack.memory import Peak
from outrigger_testenv.attack.neighbour import WARMUP, Report
from outrigger_testenv.attack.probes import Probes
from outrigger_testenv.attack.scene import Scene
from outrigger_testenv.bench.spread import in_turns

PEAK = 600 * MIB
RATIO = 2.0
# Where the baseline's 99th percentiles differ by more than this factor, medians are compared.
STEADY = 2.0
# One probe in a hundred may take longer than a second.
SLOW_SHARE = 0.01


@dataclass(frozen=True)
class Effort:
    """The number of turns and their seconds; whether times are measured at all."""

    turns: int
    seconds: float
    times: bool = True


FULL = Effort(TURNS, 2.0)
QUICK = Effort(1, 2.0)
# For tests: no time is measured, so nothing that a busy machine can break.
UNTIMED = Effort(1, 1.5, times=False)


def run(case: Case, scene: Scene, effort: Effort) -> Row:
    """Runs a case; an attack that breaks a bound is a row too."""
    row = Row(case)
    effort = replace(effort, turns=min(effort.turns, case.turns))
    stack = case.stack(scene)
    log = stack.serve.process.log
    before = log.stat().st_size
    with Peak(stack.serve.process) as peak:
        try:
            _turns(row, scene, effort)
        except Broken as broken:
            row.broken.append(str(broken))
        # A process that ends or hangs under an attack must not hide the other cases.
        except Exception as error:
            first, _, _ = str(error).partition("\n")
            row.broken.append(f"{type(error).__name__}: {first}")
    row.peak = peak.bytes
    if b"panicked at" in log.read_bytes()[before:]:
        row.broken.append("the control plane panicked")
    _check(row, peak.stopped, effort)
    if not row.held:
        scene.fresh(stack)
    return row


def _turns(row: Row, scene: Scene, effort: Effort) -> None:
    case = row.case
    if case.prepare:
        for number in range(effort.turns):
            case.prepare(scene, number)
    attacks, baselines = iter(range(effort.turns)), iter(range(effort.turns))

    def attacked() -> Report | None:
        return _probed(row, scene, Turn(next(attacks), effort.seconds), effort)

    def unharmed() -> Report | None:
        turn = Turn(next(baselines), effort.seconds)
        return _beside(scene, turn, case.baseline, case, effort)[0]

    if case.baseline is None or not effort.times:
        in_turns(effort.turns, attacked)
    else:
        row.ratio, row.quantile = compared(in_turns(effort.turns, attacked, unharmed))


def compared(rounds: list[tuple[Report, Report]]) -> tuple[float, str]:
    """The median of the turns' ratios, and the quantile of latency that is compared."""
    baselines = [baseline.p99 for _, baseline in rounds]
    quantile = "p99" if max(baselines) <= STEADY * min(baselines) else "p50"
    ratios = [
        getattr(attacked, quantile) / max(getattr(baseline, quantile), 1e-3)
        for attacked, baseline in rounds
    ]
    return float(np.median(ratios)), quantile


def _probed(row: Row, scene: Scene, turn: Turn, effort: Effort) -> Report | None:
    case = row.case
    probes = Probes(scene.address("health", case.stack(scene)), case.probes)
    try:
        with probes:
            report, row.outcome = _beside(scene, turn, case.attack, case, effort)
    finally:
        row.probes += len(probes.seconds)
        row.probes_failed += probes.failed
        row.probes_slow += probes.slow
    if report and report.failures:
        raise Broken(f"the neighbour's requests failed: {report.failures}")
    return report


def _beside(
    scene: Scene, turn: Turn, act: Act, case: Case, effort: Effort
) -> tuple[Report | None, str]:
    """Acts while the neighbour predicts."""
    with ThreadPoolExecutor(1) as threads:
        beside = threads.submit(_measured, scene, turn, case, effort)
        outcome = act(scene, turn)
        return beside.result(), outcome


def _measured(scene: Scene, turn: Turn, case: Case, effort: Effort) -> Report | None:
    try:
        if case.neighbour is None:
            return None
        if effort.times:
            return case.neighbour(scene, turn.seconds)
        # Without a neighbour to wait for, the attack is given as long.
        threading.Event().wait(WARMUP + turn.seconds)
        return None
    finally:
        turn.over.set()


def _check(row: Row, stopped: bool, effort: Effort) -> None:
    if stopped:
        row.broken.append("the control plane was killed for its memory")
    if row.peak > PEAK:
        row.broken.append(f"peak {row.peak // MIB} MiB instead of {PEAK // MIB}")
    if not effort.times:
        return
    if row.ratio is not None and row.ratio > RATIO:
        row.broken.append(f"the neighbour's {row.quantile} is {row.ratio:.1f} times the baseline")
    if row.probes_failed:
        row.broken.append(f"{row.probes_failed} of {row.probes} probes failed")
    if row.probes_slow > SLOW_SHARE * row.probes:
        row.broken.append(f"{row.probes_slow} of {row.probes} probes took over 1 s")
