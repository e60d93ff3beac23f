"""`make cost`: what release builds of this commit and of the anchors cost, and their ratio.

With --limits it counts the program that OUTRIGGER_BIN names and holds it against the recorded
counts of the anchors' builds for tests; with --record it records those. Exits with 1 if a limit is
exceeded.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.cost import meter, parts

DATA = repository() / "testenv" / "cost"
RECORDED = DATA / "anchors.json"
# A build for tests differs from others in what it inlines, so its instructions say little.
_HELD = ("allocations", "copied_bytes", "system_calls")
_ROOM = 1.03

Table = dict[str, dict[str, float]]


def main() -> int:
    options = _parser().parse_args()
    if missing := meter.missing():
        print(f"NOT TESTED: the cost of a request, which needs {', '.join(missing)}")
        return 1 if os.environ.get("CI") else 0
    anchors = yaml.safe_load((DATA / "limits.yaml").read_text())
    if options.limits:
        if not RECORDED.exists():
            raise SystemExit(f"{RECORDED} is missing: --record writes it")
        recorded = json.loads(RECORDED.read_text())
        now = count(outrigger(), _parts(anchors["anchors"], options.only))
        _print(recorded, now)
        return _check(recorded, now, anchors["above"] or {})
    before: Table = {}
    for commit in sorted(set(anchors["anchors"].values())):
        program = _built(commit, [] if options.record else ["--release"])
        before |= count(program, _parts(anchors["anchors"], options.only, commit))
    if options.record:
        RECORDED.write_text(f"{json.dumps(before, indent=1, sort_keys=True)}\n")
    else:
        _print(before, count(outrigger(), _parts(anchors["anchors"], options.only)))
    return 0


def count(program: Path, names: Iterable[str]) -> Table:
    """Counts the parts of these names, as many at a time as there are processors."""
    processors = sorted(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory() as name,
        ThreadPoolExecutor(len(processors) + 1) as running,
    ):

        def run(at: int, part: str) -> Table:
            output = Path(name) / part
            command = [sys.executable, "-m", "outrigger_testenv.cost.parts", part]
            command += ["--program", program, "--processor", str(processors[at % len(processors)])]
            subprocess.run([*command, "--output", output], check=True)
            return json.loads(output.read_text())

        counted: Table = {}
        for each in running.map(run, *zip(*enumerate(names), strict=True)):
            counted |= each
    return counted


def _parts(anchors: Mapping[str, str], only: str, commit: str | None = None) -> list[str]:
    """The parts whose names begin so, and whose anchor is the commit."""
    return [
        part
        for part in parts.PARTS
        if part.startswith(only) and commit in (None, anchors[parts.NAMES[part][0]])
    ]


def _built(commit: str, flags: list[str]) -> Path:
    command = [repository() / "scripts" / "build-commit", *flags, commit]
    built = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return Path(built) / "outrigger"


def _print(before: Table, now: Table) -> None:
    print(f"{'':20}{'':16}{'anchor':>14}{'now':>14}{'ratio':>8}")
    for name, counts in now.items():
        for key, value in counts.items():
            old = before[name][key]
            ratio = f"{value / old:8.3f}" if old > 0 else ""
            print(f"{name:20}{key:16}{old:14.1f}{value:14.1f}{ratio}")


def _check(before: Table, now: Table, above: Mapping[str, Any]) -> int:
    """Prints the counts beyond their limits. Returns 1 if there are any."""
    beyond = 0
    for name, counts in now.items():
        for key in _HELD:
            entry = above.get(name, {}).get(key)
            limit = entry["limit"] if entry else before[name][key] * _ROOM
            # Counts of slopes have halves.
            if counts[key] > limit + 0.5:
                beyond += 1
                print(f"beyond its limit: {name}, {key}: {counts[key]:.1f} > {limit:.1f}")
    print(f"cost: {len(now)} counted, {beyond} beyond their limits")
    return 1 if beyond else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make cost", description=__doc__.splitlines()[0])
    parser.add_argument("--limits", action="store_true", help="hold OUTRIGGER_BIN to the limits")
    parser.add_argument("--record", action="store_true", help="record the anchors")
    parser.add_argument("--only", default="", help="the beginning of the names of parts")
    return parser


if __name__ == "__main__":
    sys.exit(main())
