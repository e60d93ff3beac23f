"""Comparisons with an earlier commit: both control planes by turns, in front of the same engine.

Both are binaries as they are shipped, each optimised by its own commit's profile. The engine of
both is the earlier commit's, so that only the control planes differ.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from outrigger_testenv.bench import process
from outrigger_testenv.bench.figure import Effort, Failed, Measurement
from outrigger_testenv.bench.generator import CLOSED_LOOP, Report, compare, rate, run
from outrigger_testenv.bench.path import LATENCY
from outrigger_testenv.bench.programs import TRANSCODE, needs, output_of
from outrigger_testenv.bench.setup import COLUMNAR, Setup, through
from outrigger_testenv.bench.spread import in_turns

# Pairs of runs with full effort. With less effort, the number is that of its repetitions.
PAIRS = 15
# The rates of two equally long runs. Their difference is the cost of requests, without that of the
# start and of the work that goes on beside them. Callgrind runs a program 50 times slower.
_FEW, _MANY = 5, 30
# The seconds of such a run.
_COUNTED = 15


def pairs(effort: Effort) -> int:
    """The number of pairs of runs."""
    return PAIRS if effort.repeats >= 5 else effort.repeats


def throughput(form: str, setup: Setup, effort: Effort) -> Measurement:
    """Throughput through this commit's control plane, divided by the earlier one's."""

    def share(now: Report, before: Report) -> float:
        return now.throughput / before.throughput

    return _compare(form, CLOSED_LOOP, setup, effort, share)


def p99(setup: Setup, effort: Effort) -> Measurement:
    """Milliseconds by which this commit's 99th percentile is above the earlier one's."""

    def added(now: Report, before: Report) -> float:
        return now.p99 - before.p99

    return _compare(COLUMNAR, rate(LATENCY), setup, effort, added)


def _compare(
    form: str,
    load: tuple[str, ...],
    setup: Setup,
    effort: Effort,
    value: Callable[[Report, Report], float],
) -> Measurement:
    now, before = (through(stack, setup.package, form) for stack in setup.both)
    effort = replace(effort, repeats=pairs(effort))
    return compare(
        replace(now, name=f"now: {now.name}"),
        replace(before, name=f"before: {before.name}"),
        load,
        effort,
        value,
    )


def transcode(name: str, setup: Setup, effort: Effort) -> Measurement:
    """The earlier commit's time for the transcoder, divided by this commit's; above 1 is faster."""
    program = setup.before.transcode
    side = "other" if name.endswith("speedup") else "one"

    def seconds(binary: Path) -> float:
        turns = sorted(json.loads(output_of(binary, "--json", name))[side])
        return turns[len(turns) // 2]

    turns = in_turns(
        pairs(effort),
        lambda: seconds(setup.programs[TRANSCODE]),
        lambda: seconds(program),
    )
    return Measurement([before / now for now, before in turns])


def idle_memory(setup: Setup, effort: Effort) -> Measurement:
    """Resident memory of this commit's idle control plane, divided by the earlier one's.

    Both run from new copies: how many pages of a binary are resident depends on how its file came
    into the page cache.
    """
    with process.warm() as stack, tempfile.TemporaryDirectory() as directory:
        binaries = [
            Path(shutil.copy2(binary, Path(directory) / f"outrigger-{number}"))
            for number, binary in enumerate(setup.binaries)
        ]

        def idle(binary: Path) -> float:
            stack.serve.use(binary)
            return process.idle(stack)

        turns = in_turns(
            process.idle_repeats(effort), *(lambda binary=each: idle(binary) for each in binaries)
        )
    return Measurement([now / before for now, before in turns])


def start_to_ready(setup: Setup, effort: Effort) -> Measurement:
    """Milliseconds by which this commit's start is longer than the earlier one's."""
    binaries = setup.binaries
    with process.warm() as stack:

        def start(binary: Path) -> float:
            stack.serve.use(binary)
            return process.restart(stack)

        turns = in_turns(pairs(effort), *(lambda binary=each: start(binary) for each in binaries))
    return Measurement([(now - before) * 1e3 for now, before in turns])


def instructions(form: str, setup: Setup, effort: Effort) -> Measurement:
    """User instructions of this commit's control plane for a request, divided by the earlier one's.

    Callgrind counts them, on processors that it knows: it has no AVX-512.
    """
    needs("valgrind")

    def a_request(binary: Path) -> float:
        (few, less), (many, more) = (
            _counted(setup, binary, form, per_second, replace(effort, measured=_COUNTED))
            for per_second in (_FEW, _MANY)
        )
        return (more - less) / (many - few)

    now, before = (a_request(binary) for binary in setup.binaries)
    return Measurement([now / before], {"now": now, "before": before})


def _counted(
    setup: Setup, binary: Path, form: str, per_second: int, effort: Effort
) -> tuple[int, int]:
    """The requests of one run, and the instructions of the control plane from start to end."""
    with setup.stack_of(binary) as stack:
        counts = stack.logs / "callgrind"
        serve = stack.serve.process
        serve.command = [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={counts}",
            *serve.command,
        ]
        setup.serve_model(stack)
        report = run(through(stack, setup.package, form), rate(per_second), effort)
        serve.stop()
        return report.json["requests"], total(counts.read_text())


def total(counts: str) -> int:
    """The instructions in a file of callgrind. Raises Failed if there are none."""
    found = re.search(r"^(?:totals|summary): (\d+)", counts, re.MULTILINE)
    if found is None:
        raise Failed("callgrind wrote no total")
    return int(found[1])
