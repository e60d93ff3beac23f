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
from outrigger_testenv.same.mask import BY_TIME

# The lines that are printed of each difference.
_LINES = 30
# A line that comes by time, which is compared if both programs wrote it.
_BY_TIME = re.compile(rf"{BY_TIME} (\w+)")


def main() -> int:
    options = _parser().parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="same-") as name:
        directory = Path(name)
        made = directory / "packages"
        packages.make(made)
        before = options.before or _anchor()
        old, new = _record(made, directory, {"old": before, "new": outrigger()}, options.only)
    entries = yaml.safe_load((DATA / "allowed.yaml").read_text())
    found, unused = compare(old, new, entries)
    faults = [line for lines in found.values() for line in lines[:_LINES]]
    if not options.only:
        if not options.before:
            faults += [f"== allowed.yaml allows what does not differ: {entry}" for entry in unused]
        faults += [f"== {problem}" for problem in _unseen(new)]
    for line in faults:
        print(line)
    differ = sum(bool(difference(old.get(case), new.get(case))) for case in {*old, *new})
    seconds = time.monotonic() - began
    print(f"same: {len(new)} cases, {differ} differ, {len(found)} without reason, {seconds:.0f} s")
    return 1 if faults else 0


def compare(
    old: dict[str, Any], new: dict[str, Any], entries: list[dict[str, str]]
) -> tuple[dict[str, list[str]], list[dict[str, str]]]:
    """The differences that no entry allows, by case, and the entries that allow none.

    An entry allows those lines of differences that match its `what`, in the cases of its pattern.
    """
    found, used = {}, []
    for case in sorted({*old, *new}):
        lines = difference(old.get(case), new.get(case))
        mine = [entry for entry in entries if fnmatchcase(case, entry["cases"])]
        changed = [line[1:] for line in lines if line.startswith(("-", "+"))]
        allowing = [[entry for entry in mine if re.search(entry["what"], it)] for it in changed]
        used += [entry for each in allowing for entry in each]
        if not all(allowing):
            found[case] = [f"== {case}", *lines]
    return found, [entry for entry in entries if entry not in used]


def _anchor() -> Path:
    """The program of the commit that `testenv/same/anchor` names, which is built once."""
    commit = (DATA / "anchor").read_text().strip()
    command = [repository() / "scripts" / "build-commit", commit]
    built = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return Path(built) / "outrigger"


def _record(made: Path, directory: Path, programs: dict[str, Path], only: str) -> list[dict]:
    """The outcomes of both programs, recorded side by side."""
    running = []
    try:
        for name, program in programs.items():
            output = directory / f"{name}.json"
            command = [sys.executable, "-m", "outrigger_testenv.same.record", "--packages", made]
            command += ["--output", output, "--only", only]
            environment = {**os.environ, "OUTRIGGER_BIN": str(program)}
            running.append((subprocess.Popen(command, env=environment), output))
        for process, _ in running:
            if process.wait() != 0:
                raise SystemExit("the cases could not be recorded, see above")
    finally:
        for process, _ in running:
            process.terminate()
    return [json.loads(output.read_text()) for _, output in running]


def reasons() -> set[str]:
    """The reasons that docs/errors.md lists."""
    page = (repository() / "docs" / "errors.md").read_text()
    return set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE))


def _unseen(outcomes: dict[str, Any]) -> Iterator[str]:
    """Reasons that no case yields although `reasons.yaml` does not say why, or the other way
    round.
    """
    seen = reasons() & set(_texts(outcomes))
    explained = yaml.safe_load((DATA / "reasons.yaml").read_text())
    for reason in sorted(reasons() - seen - set(explained)):
        yield f"no case yields {reason}"
    for reason in sorted(set(explained) & seen):
        yield f"reasons.yaml says that no case yields {reason}, and one does"


def _texts(value: Any) -> Iterator[str]:
    """All texts in an outcome but those that a schema lists as possible."""
    if isinstance(value, dict):
        value = [each for key, each in value.items() if key not in {"enum", "description"}]
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def difference(old: Any, new: Any) -> list[str]:
    """The lines by which two outcomes differ; none if they are equal."""
    came = [set(_BY_TIME.findall(json.dumps(each))) for each in (old, new)]
    texts = [
        json.dumps(_in_lines(each, came[0] ^ came[1]), indent=1, ensure_ascii=False).splitlines()
        for each in (old, new)
    ]
    return list(difflib.unified_diff(*texts, n=1, lineterm=""))[2:]


def _in_lines(value: Any, without: set[str]) -> Any:
    """The value with its texts of several lines as lists, without these lines that come by time."""
    if isinstance(value, dict):
        return {key: _in_lines(each, without) for key, each in value.items()}
    if isinstance(value, list):
        return [_in_lines(each, without) for each in value]
    if isinstance(value, str) and "\n" in value:
        lines = value.split("\n")
        left = [line for line in lines if without.isdisjoint(_BY_TIME.findall(line))]
        return left if len(left) > 1 else left[0]
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make same", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="the beginning of the names of cases")
    parser.add_argument("--before", type=Path, help="the program to compare with")
    return parser


if __name__ == "__main__":
    sys.exit(main())
