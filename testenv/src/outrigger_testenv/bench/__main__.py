"""`make bench`: measures the figures of the request path.

A figure is printed as a line `bench <name> <value> <unit>` on standard output, below a comment with
its spread, and written to a file with every sample. Plan, progress, and a summary with the targets
go to standard error. A missed target is reported but is a failure with --strict only. A figure that
needs something this machine does not have is no failure; one that could not be measured is.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from outrigger_testenv.bench import layout_page
from outrigger_testenv.bench.batch.figures import BATCH_FIGURES, SOAK_FIGURES
from outrigger_testenv.bench.client_figures import LOST_FIGURES
from outrigger_testenv.bench.figure import FULL, QUICK, Effort, Figure, Skipped
from outrigger_testenv.bench.figures import COMPARISONS, FIGURES, chosen
from outrigger_testenv.bench.layout_figures import LAYOUT_FIGURES
from outrigger_testenv.bench.machine import commit, load_average, machine
from outrigger_testenv.bench.programs import build, build_commit
from outrigger_testenv.bench.result import Result
from outrigger_testenv.bench.setup import TENSORFLOW, Setup


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if every figure was measured, 1 if one could not be or, with --strict, missed its
    target, 64 if no figure matches.
    """
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--only",
        default="",
        metavar="PREFIX",
        help="figures whose names have this prefix; those of batch jobs are measured by it only",
    )
    parser.add_argument("--quick", action="store_true", help="shorter, for trying it out")
    parser.add_argument(
        "--before",
        metavar="COMMIT",
        help="compare with this commit: measures the figures that compare only",
    )
    parser.add_argument("--strict", action="store_true", help="a missed target is a failure")
    parser.add_argument(
        "--docs", action="store_true", help="write the results of the model's forms into the docs"
    )
    parser.add_argument("--output", type=Path, required=True, help="directory of the JSON files")
    options = parser.parse_args(arguments)
    known = COMPARISONS if options.before else FIGURES
    if options.only and not options.before:
        known = (*known, *LOST_FIGURES, *BATCH_FIGURES, *SOAK_FIGURES)
    figures = chosen(options.only, known)
    if not figures:
        _say(f"no figure has the prefix {options.only}:", *(figure.name for figure in known))
        return 64
    if options.docs and (options.quick or not {*LAYOUT_FIGURES} <= {*figures}):
        parser.error("--docs needs all figures layout-, with full effort")
    effort = QUICK if options.quick else FULL
    os.environ.update(TENSORFLOW)
    # Built first, because compiling would disturb the measurements.
    before = build_commit(options.before) if options.before else None
    programs = {program: None for figure in figures for program in figure.programs}
    with Setup(build(programs), before) as setup:
        code = measure_all(figures, setup, effort, options.output, options.strict)
    if options.docs:
        layout_page.write(options.output)
    return code


def measure_all(
    figures: Sequence[Figure], setup: Setup, effort: Effort, output: Path, strict: bool = False
) -> int:
    """Measures the figures one by one and prints a summary; returns the exit code."""
    began, average = time.monotonic(), load_average()
    expected = sum(figure.seconds(effort) for figure in figures)
    _say(f"plan: {len(figures)} figures in {_clock(expected)}; load average {average:.1f}")
    circumstances = {
        "commit": commit(),
        "machine": {**machine(), "load_average_before": average},
        "effort": asdict(effort),
    }
    summary, failures = [], 0
    for at, figure in enumerate(figures, 1):
        _say(f"{at} of {len(figures)}: {figure.name}, {_clock(figure.seconds(effort))}")
        # Removes the result of an earlier run, so that a failure leaves none.
        figure.file(output).unlink(missing_ok=True)
        try:
            result = measure(figure, setup, effort)
        except Skipped as missing:
            summary.append(f"{figure.name} skipped: {missing}")
            _say(summary[-1])
        # A failure must not keep the other figures from being measured.
        except Exception as error:
            failures += 1
            summary.append(f"{figure.name} failed: {error}")
            _say(summary[-1])
        else:
            result.write(figure.file(output), circumstances)
            print(result.comment(), result.line(), sep="\n", flush=True)
            summary.append(f"{result.line()} ({result.verdict})")
            failures += strict and not result.met
    _say(f"\nmeasured in {_clock(time.monotonic() - began)}; every sample is in {output}")
    _say("\n".join(summary))
    return min(failures, 1)


def measure(figure: Figure, setup: Setup, effort: Effort) -> Result:
    """Measures one figure, and the time it took."""
    began = time.monotonic()
    measurement = figure.measure(setup, effort)
    return Result(figure, measurement, time.monotonic() - began)


def _say(*parts: str) -> None:
    print(*parts, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} min"


if __name__ == "__main__":
    sys.exit(main())
