"""The load generator, `outrigger bench`, as a process."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrigger_testenv.bench.figure import Effort, Failed, Measurement
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.binary import outrigger

TREATMENTS = 1000
# Each is served by one thread of the control plane, and sent on by one of the load
# generator: two keep two cores busy. A single thread that sends on both has half of
# what it writes read on the other core, however near that is.
CONNECTIONS = THREADS = 2
# In a closed loop: enough that engine and control plane always have a next request,
# few enough that throughput is not measured on a queue that grows.
IN_FLIGHT = 16

CONTROL_PLANE, ENGINE, PROXY = "control-plane", "engine", "proxy"


@dataclass(frozen=True)
class Side:
    """One way to the model: how the generator is told of it, and whose CPU time it takes."""

    name: str
    arguments: Sequence[str]
    processes: Mapping[str, int]


# How much to send, as arguments.
Load = Sequence[str]

CLOSED_LOOP = ("--max", "--in-flight", str(IN_FLIGHT))


def rate(requests_per_second: float) -> Load:
    """An open loop."""
    return ("--rate", f"{requests_per_second:g}")


def find_rate(p99_milliseconds: float, step_seconds: float) -> Load:
    """Open loops of a step each, for the highest rate that keeps the 99th percentile and
    has no error; the rate found must then be held for as long as the run measures."""
    limit, step = f"{p99_milliseconds:g}ms", f"{step_seconds:g}s"
    return ("--find-rate", "--p99", limit, "--step", step)


@dataclass(frozen=True)
class Report:
    """What the generator saw of a side."""

    side: str
    command: Sequence[str]
    json: Mapping[str, Any]

    @property
    def throughput(self) -> float:
        """Answers a second."""
        return self.json["throughput"]

    @property
    def p99(self) -> float:
        """Milliseconds from when a request was due."""
        return self.json["latency_ms"]["p99"]

    def cpu(self, *processes: str) -> float:
        """CPU seconds a request that the processes took together."""
        return sum(self.json["cpu_seconds_per_request"][name] for name in processes)

    @property
    def offered_rate(self) -> float:
        """Requests a second that were due; of a search, the rate found."""
        return self.json["offered_rate"]

    @property
    def errors(self) -> str:
        """How many requests failed, by reason; empty when none did."""
        return ", ".join(f"{count} {reason}" for reason, count in self.json["errors"].items())

    def raw(self) -> dict[str, Any]:
        """All of it."""
        return {"side": self.side, "command": list(self.command), **self.json}


def run(side: Side, load: Load, effort: Effort, seconds: float | None = None) -> Report:
    """One run, as long as usual or so many seconds. Raises Failed if a request does."""
    measured = effort.measured if seconds is None else seconds
    command = [str(outrigger()), "bench", *side.arguments, *load]
    command += ["--treatments", str(TREATMENTS)]
    command += ["--connections", str(CONNECTIONS), "--threads", str(THREADS)]
    command += ["--warmup", f"{effort.warmup:g}s", "--duration", f"{measured:g}s"]
    for name, process in side.processes.items():
        command += ["--pid", f"{name}={process}"]
    command += ["--output", "json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # Without a report it could not even begin.
    report = Report(side.name, command, json.loads(done.stdout)) if done.stdout else None
    if done.returncode != 0:
        reasons = f" ({report.errors})" if report else ""
        raise Failed(f"{side.name}: {done.stderr.strip()}{reasons}")
    return report


def compare(
    one: Side,
    other: Side,
    load: Load,
    effort: Effort,
    value: Callable[[Report, Report], float],
) -> Measurement:
    """The same load on both sides by turns, and a value a turn."""
    turns = in_turns(
        effort.repeats,
        lambda: run(one, load, effort),
        lambda: run(other, load, effort),
    )
    samples = [value(*turn) for turn in turns]
    return Measurement(samples, runs=[report.raw() for turn in turns for report in turn])
