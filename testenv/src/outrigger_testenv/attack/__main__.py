"""`make attack`: attacks the real processes, and says what it cost the others.

The rows of the table go to standard output as they are measured, and as Markdown to a file; with
--docs also to docs/security.md.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from outrigger_testenv.attack.cases import CASES, chosen
from outrigger_testenv.attack.runner import FULL, QUICK, run
from outrigger_testenv.attack.scene import Scene
from outrigger_testenv.attack.table import cells, markdown
from outrigger_testenv.bench.machine import commit, load_average, machine
from outrigger_testenv.binary import repository
from outrigger_testenv.marks import insert


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if every bound held, 1 if one did not, 64 if no case has the prefix."""
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("--only", default="", metavar="PREFIX", help="cases with this prefix")
    parser.add_argument("--quick", action="store_true", help="one short turn, for trying it out")
    parser.add_argument("--output", type=Path, required=True, help="for attack.md and serve.log")
    parser.add_argument("--docs", action="store_true", help="write the whole table into the docs")
    options = parser.parse_args(arguments)
    if options.docs and (options.only or options.quick):
        parser.error("the table in the docs is that of all cases, with full effort")
    cases = chosen(options.only)
    if not cases:
        print(f"no case has the prefix {options.only}:", *(case.name for case in CASES))
        return 64
    effort = QUICK if options.quick else FULL
    began, average = time.monotonic(), load_average()
    rows = []
    options.output.mkdir(parents=True, exist_ok=True)
    with Scene() as scene:
        for case in cases:
            rows.append(run(case, scene, effort))
            print(" | ".join(cells(rows[-1])), flush=True)
        shutil.copy(scene.stack.logs / "serve.log", options.output / "serve.log")
    seconds, processor = round(time.monotonic() - began), machine()["cpu"]
    circumstances = [
        f"Commit {commit()['id']}, {processor}, {effort.turns} turns of {effort.seconds:g} s, "
        f"{seconds} s in all, load average before {average:.1f}, {_sharing()}.",
        "",
    ]
    file = options.output / "attack.md"
    table = markdown(rows, circumstances)
    file.write_text(table)
    if options.docs:
        insert(repository() / "docs" / "security.md", "attacks", table)
    print(f"\n{sum(row.held for row in rows)} of {len(rows)} cases hold; the table is in {file}")
    return int(not all(row.held for row in rows))


def _sharing() -> str:
    """The way in which the kernel shares processors, as text."""
    file = Path("/proc/sys/kernel/sched_autogroup_enabled")
    grouped = file.exists() and file.read_text().strip() == "1"
    return "processors shared by session" if grouped else "processors shared by priority"


if __name__ == "__main__":
    sys.exit(main())
