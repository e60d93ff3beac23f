"""Many tiny models: time and CPU to load them, and the CPU of the control plane without requests.

CPU times are those of the process, so that other work on the machine hardly matters.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from outrigger_testenv.bench.figure import FULL, Effort, Measurement
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.processes import Process
from outrigger_testenv.stack import Stack

# Models asked for at a time.
_CALLERS = 16
# One load, on a busy machine.
_TIMEOUT = 300.0
_POLL = 10
# The first look-ups after the loads, and threads that end, are over by then; seconds.
_SETTLED = 15


@dataclass(frozen=True)
class _Seen:
    """The measured values of one run."""

    load_seconds: float
    load_cpu: float
    engine_cpu: float
    # The control plane's CPU over three intervals of look-ups, in percent of a core.
    idle: tuple[float, ...]


def load_seconds(count: int, _: Setup, effort: Effort) -> Measurement:
    """Seconds until all models are loaded."""
    seen = _seen(count, effort)
    return Measurement([seen.load_seconds], _conditions(count, seen))


def load_cpu(count: int, _: Setup, effort: Effort) -> Measurement:
    """CPU seconds of the control plane until all models are loaded."""
    seen = _seen(count, effort)
    return Measurement([seen.load_cpu], _conditions(count, seen))


def idle_cpu(count: int, _: Setup, effort: Effort) -> Measurement:
    """The control plane's CPU without requests, in percent of a core."""
    seen = _seen(count, effort)
    return Measurement(seen.idle, _conditions(count, seen))


def seconds(count: int, figures: int, effort: Effort) -> float:
    """The expected duration of a run, shared by the figures that it gives."""
    return (count / 8 + _SETTLED + _repeats(effort) * _POLL) / figures


def _repeats(effort: Effort) -> int:
    return 3 if effort == FULL else 1


def _conditions(count: int, seen: _Seen) -> dict[str, float]:
    return {"models": count, "poll_interval": _POLL, "engine_cpu": seen.engine_cpu}


@cache
def _seen(count: int, effort: Effort) -> _Seen:
    with _stack(count) as (stack, names):
        serve, engine = stack.serve.process, stack.engine.process
        before, began = (_cpu(serve), _cpu(engine)), time.monotonic()
        client = stack.client(_TIMEOUT)
        with ThreadPoolExecutor(_CALLERS) as callers:
            # The list raises what a call raised.
            list(callers.map(client.load, names))
        took = time.monotonic() - began
        load_cpu, engine_cpu = _cpu(serve) - before[0], _cpu(engine) - before[1]
        time.sleep(_SETTLED)
        idle = tuple(_busy(serve, _POLL) for _ in range(_repeats(effort)))
    return _Seen(took, load_cpu, engine_cpu, idle)


@contextmanager
def _stack(count: int) -> Iterator[tuple[Stack, list[str]]]:
    """A stack with that many models to pull, none of them loaded."""
    # Imported here because importing TensorFlow takes seconds.
    from outrigger_testenv import variants

    names = [f"model-{number}" for number in range(count)]
    overrides = {"images": {"poll_interval": f"{_POLL}s"}}
    with (
        tempfile.TemporaryDirectory(prefix="outrigger-bench-") as directory,
        Stack(overrides, start=False) as stack,
    ):
        if stack.registry:
            stack.registry.start()
        packages = variants.versions(Path(directory), range(1, count + 1))
        with ThreadPoolExecutor(os.cpu_count()) as pushing:
            list(pushing.map(stack.push, packages, names))
        stack.engine.start()
        stack.serve.start()
        yield stack, names


def _cpu(process: Process) -> float:
    """CPU seconds of a running process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _busy(process: Process, interval: float) -> float:
    """The part of a core that a process takes during an interval, in percent."""
    before, began = _cpu(process), time.monotonic()
    time.sleep(interval)
    return 100 * (_cpu(process) - before) / (time.monotonic() - began)
