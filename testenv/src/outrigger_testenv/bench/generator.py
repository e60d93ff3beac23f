"""The load generator, `outrigger bench`, as a process.

`clients` has the others, which are written with the libraries that callers use.
"""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrigger_testenv.bench.figure import Effort, Failed, Measurement
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.binary import outrigger

TREATMENTS = 1000
# Each connection is served by one thread of the control plane, and used by one thread of the load
# generator: two keep two cores busy. With a single generator thread for both connections, half of
# what it writes would be read on the other core.
CONNECTIONS = THREADS = 2
# The requests in flight in a closed loop: enough that engine and control plane always have a next
# request, few enough that throughput is not measured on a growing queue.
IN_FLIGHT = 16

CONTROL_PLANE, ENGINE, PROXY = "control-plane", "engine", "proxy"

# The frames in which a message is sent, bytes: as the field's clients send them, and as one frame,
# which every figure was measured with before there was a choice.
FRAME, ONE_FRAME = 16 << 10, 1 << 20


@dataclass(frozen=True)
class Side:
    """A way to the model: the generator's arguments for it, and the processes whose CPU time it
    uses.
    """

    name: str
    arguments: Sequence[str]
    processes: Mapping[str, int]


# The load to send, as arguments of the generator.
Load = Sequence[str]

CLOSED_LOOP = ("--max", "--in-flight", str(IN_FLIGHT))


def rate(requests_per_second: float) -> Load:
    """An open loop at this rate."""
    return ("--rate", f"{requests_per_second:g}")


def find_rate(p99_milliseconds: float, step_seconds: float) -> Load:
    """A search for the highest rate that keeps the 99th percentile without errors, in open loops of
    a step each. The rate found must then be held for the measured time of the run.
    """
    limit, step = f"{p99_milliseconds:g}ms", f"{step_seconds:g}s"
    return ("--find-rate", "--p99", limit, "--step", step)


@dataclass(frozen=True)
class Report:
    """The generator's report on a side."""

    side: str
    command: Sequence[str]
    json: Mapping[str, Any]

    @property
    def throughput(self) -> float:
        """Answers per second."""
        return self.json["throughput"]

    @property
    def p99(self) -> float:
        """The 99th percentile of latency, in milliseconds from when a request was due."""
        return self.json["latency_ms"]["p99"]

    @property
    def failed(self) -> int:
        """The number of failed requests."""
        return sum(self.json["errors"].values())

    def cpu(self, *processes: str) -> float:
        """CPU seconds per request of these processes together."""
        return sum(self.json["cpu_seconds_per_request"][name] for name in processes)

    @property
    def offered_rate(self) -> float:
        """Requests per second that were due; for a search, the rate found."""
        return self.json["offered_rate"]

    @property
    def errors(self) -> str:
        """The number of failed requests by reason; empty if none failed."""
        return ", ".join(f"{count} {reason}" for reason, count in self.json["errors"].items())

    def raw(self) -> dict[str, Any]:
        """The whole report."""
        return {"side": self.side, "command": list(self.command), **self.json}


def run(
    side: Side,
    load: Load,
    effort: Effort,
    seconds: float | None = None,
    *,
    treatments: int = TREATMENTS,
    connections: int = CONNECTIONS,
) -> Report:
    """Runs `outrigger bench` once, for `seconds` or the usual time. Raises Failed if requests
    fail.
    """
    measured = effort.measured if seconds is None else seconds
    command = [str(outrigger()), "bench", *side.arguments, *load]
    command += ["--treatments", str(treatments)]
    threads = min(THREADS, connections)
    command += ["--connections", str(connections), "--threads", str(threads)]
    command += ["--warmup", f"{effort.warmup:g}s", "--duration", f"{measured:g}s"]
    for name, process in side.processes.items():
        command += ["--pid", f"{name}={process}"]
    command += ["--output", "json", "--quiet"]
    return execute(side.name, command)


def execute(side: str, command: Sequence[str], may_fail: bool = False) -> Report:
    """Runs a load generator. Raises Failed if it could not begin or, unless they may, requests
    fail.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # No output means that the run could not begin.
    report = Report(side, command, json.loads(done.stdout)) if done.stdout else None
    if report is None or (done.returncode != 0 and not may_fail):
        reasons = f" ({report.errors})" if report else ""
        raise Failed(f"{side}: {done.stderr.strip()}{reasons}")
    return report


def compare(
    one: Side,
    other: Side,
    load: Load,
    effort: Effort,
    value: Callable[[Report, Report], float],
    **settings: int,
) -> Measurement:
    """Sends the same load to both sides in turns, and computes one value for each turn. `settings`
    are those of `run`.
    """
    turns = in_turns(
        effort.repeats,
        lambda: run(one, load, effort, **settings),
        lambda: run(other, load, effort, **settings),
    )
    samples = [value(*turn) for turn in turns]
    return Measurement(samples, runs=[report.raw() for turn in turns for report in turn])
