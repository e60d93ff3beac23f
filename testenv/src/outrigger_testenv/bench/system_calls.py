"""System calls of the control plane, counted by strace."""

import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from outrigger_testenv.bench.figure import Effort, Failed, Measurement, Skipped
from outrigger_testenv.bench.generator import rate, run
from outrigger_testenv.bench.programs import needs
from outrigger_testenv.bench.setup import COLUMNAR, Setup

# Requests a second while they are counted: few enough that threads sleep between requests.
_RATE = 400


def a_request(setup: Setup, effort: Effort) -> Measurement:
    """System calls of the control plane for one columnar request."""
    needs("strace")
    stack, side = setup.stack, setup.through(COLUMNAR)

    def counted() -> float:
        table = stack.logs / "strace"
        command = ["strace", "-f", "-c", "-o", str(table), "-p", str(stack.serve.process.pid)]
        with _attached(command) as tracer:
            report = run(side, rate(_RATE), effort)
            tracer.send_signal(signal.SIGINT)
            tracer.wait(timeout=30)
        # Requests of the warm-up are traced too.
        requests = report.json["requests"] * (1 + effort.warmup / effort.measured)
        return calls(table.read_text()) / requests

    return Measurement([counted() for _ in range(effort.repeats)])


def calls(table: str) -> int:
    """The total of a table of `strace -c`. Raises Failed if there is none."""
    found = re.search(r"^\s*100\.00\s+\S+\s+\d+\s+(\d+)\s+(?:\d+\s+)?total$", table, re.M)
    if found is None:
        raise Failed("strace printed no total")
    return int(found[1])


@contextmanager
def _attached(command: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A tracer, once it is attached: it says so on standard error."""
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        line = tracer.stderr.readline().decode()
        if "attached" not in line:
            raise Skipped(f"strace cannot attach: {line.strip()}")
        yield tracer
    finally:
        tracer.kill()
        tracer.wait()
