"""`make same`: sends the cases of `testenv/same` to this program and to that of an earlier commit.

Prints each difference that no entry of `testenv/same/allowed.yaml` allows, and each entry that
allows nothing. Exits with 0 if there is neither, with 1 otherwise.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.same import packages
from outrigger_testenv.same.cases import DATA

# The lines that are printed of each difference.
_LINES = 30


def main() -> int:
    options = _parser().parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="same-") as name:
        directory = Path(name)
        made = directory / "packages"
        packages.make(made)
        before = options.before or _anchor()
        old, new = _record(made, directory, {"old": before, "new": outrigger()}, options.only)
    entries = yaml.safe_load((DATA / "allowed.yaml").read_text()) or []
    used, faults, differing = set(), 0, 0
    for case in sorted({*old, *new}):
        lines = _difference(old.get(case), new.get(case))
        if not lines:
            continue
        differing += 1
        allowed = {entry["cases"] for entry in entries if fnmatchcase(case, entry["cases"])}
        used |= allowed
        if not allowed:
            faults += 1
            print("\n".join([f"== {case}", *lines[:_LINES]]))
    if not options.only:
        for unused in {entry["cases"] for entry in entries} - used:
            faults += 1
            print(f"== allowed.yaml allows differences of {unused}, and there are none")
        for problem in _unseen(new):
            faults += 1
            print(f"== {problem}")
    seconds = time.monotonic() - began
    print(f"same: {len(new)} cases, {differing} differ, {faults} faults, in {seconds:.0f} s")
    return 1 if faults else 0


def _anchor() -> Path:
    """The program of the commit that `testenv/same/anchor` names, which is built once."""
    commit = (DATA / "anchor").read_text().strip()
    command = [repository() / "scripts" / "build-commit", commit]
    built = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return Path(built) / "outrigger"


def _record(made: Path, directory: Path, programs: dict[str, Path], only: str) -> list[dict]:
    """The outcomes of both programs, recorded side by side."""
    running = []
    for name, program in programs.items():
        output = directory / f"{name}.json"
        command = [sys.executable, "-m", "outrigger_testenv.same.record", "--packages", made]
        command += ["--output", output, "--only", only]
        environment = {**os.environ, "OUTRIGGER_BIN": str(program)}
        running.append((subprocess.Popen(command, env=environment), output))
    for process, _ in running:
        if process.wait() != 0:
            raise SystemExit("the cases could not be recorded, see above")
    return [json.loads(output.read_text()) for _, output in running]


def _unseen(outcomes: dict[str, Any]) -> Iterator[str]:
    """Reasons that no case yields although `reasons.yaml` does not say why, or the other way
    round.
    """
    page = (repository() / "docs" / "errors.md").read_text()
    reasons = set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE))
    seen = reasons & set(_texts(outcomes))
    explained = yaml.safe_load((DATA / "reasons.yaml").read_text())
    for reason in sorted(reasons - seen - set(explained)):
        yield f"no case yields {reason}"
    for reason in sorted(set(explained) & seen):
        yield f"reasons.yaml says that no case yields {reason}, and one does"


def _texts(value: Any) -> Iterator[str]:
    """All texts in an outcome."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _difference(old: Any, new: Any) -> list[str]:
    """The lines by which two outcomes differ; none if they are equal."""
    if old == new:
        return []
    texts = [json.dumps(each, indent=1, ensure_ascii=False).splitlines() for each in (old, new)]
    return list(difflib.unified_diff(*texts, "before", "now", n=1, lineterm=""))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make same", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="the beginning of the names of cases")
    parser.add_argument("--before", type=Path, help="the program to compare with")
    return parser


if __name__ == "__main__":
    sys.exit(main())
