"""The control plane's process: its idle memory, and its time from start to ready."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.processes import resident
from outrigger_testenv.stack import Stack

_MODELS = 4
# Threads that pull and unpack end ten seconds after their last work; memory is measured later.
SETTLED = 12


def idle_memory(_: Setup, effort: Effort) -> Measurement:
    """Resident memory in megabytes, with models loaded and no requests."""
    with warm() as stack:
        return Measurement([idle(stack) for _ in range(idle_repeats(effort))], _CONDITIONS)


def idle_repeats(effort: Effort) -> int:
    """Two repeats are enough: they differ by tenths of a megabyte."""
    return min(2, effort.repeats)


def start_to_ready(_: Setup, effort: Effort) -> Measurement:
    """Seconds from the process's start to /readyz, with an engine that already has the models
    loaded.
    """
    with warm() as stack:
        return Measurement([restart(stack) for _ in range(effort.repeats)], _CONDITIONS)


def start_to_ready_both(_: Setup, effort: Effort) -> Measurement:
    """Seconds to /readyz with an engine that has just been started and has no model loaded."""

    def both(stack: Stack) -> float:
        stack.engine.process.kill()
        stack.engine.start()
        return restart(stack)

    with warm() as stack:
        return Measurement([both(stack) for _ in range(effort.repeats)], _CONDITIONS)


_CONDITIONS = {"models": _MODELS}


@contextmanager
def warm() -> Iterator[Stack]:
    """A stack whose store holds all its models, which are preloaded."""
    # Imported here because importing TensorFlow takes seconds.
    from outrigger_testenv import variants

    names = [f"model-{number}" for number in range(_MODELS)]
    preloaded = [{"name": name, "preload": True} for name in names]
    with (
        tempfile.TemporaryDirectory(prefix="outrigger-bench-") as directory,
        Stack({"images": {"poll_interval": "30s"}}, preloaded, start=False) as stack,
    ):
        if stack.registry:
            stack.registry.start()
        packages = variants.versions(Path(directory), range(1, _MODELS + 1))
        for name, package in zip(names, packages, strict=True):
            stack.push(package, name)
        stack.engine.start()
        stack.serve.start()
        yield stack


def restart(stack: Stack) -> float:
    """Restarts the control plane; seconds until it is ready."""
    stack.serve.process.stop()
    began = time.monotonic()
    stack.serve.start()
    return time.monotonic() - began


def idle(stack: Stack) -> float:
    """Resident memory of the control plane in megabytes, restarted and settled."""
    restart(stack)
    time.sleep(SETTLED)
    return resident(stack.serve.process.pid) / 1e6
