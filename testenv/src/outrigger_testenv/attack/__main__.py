"""`make attack`: attacks the real processes, and says what it cost the others.

The rows of the table go to standard output as they are measured, and as Markdown to a file; with
--docs also to docs/security.md.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from outrigger_testenv.attack.case import MIB
from outrigger_testenv.attack.cases import CASES, chosen
from outrigger_testenv.attack.runner import FULL, QUICK, run
from outrigger_testenv.attack.scene import KEPT, Scene
from outrigger_testenv.attack.table import cells, markdown, summary
from outrigger_testenv.bench.machine import commit, load_average, machine
from outrigger_testenv.binary import repository
from outrigger_testenv.marks import insert


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if every bound held but those that cases are not defended from, 1 if another one
    did not, 64 if no case has the prefix.
    """
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
    measured, built = machine(), commit()
    rows = []
    options.output.mkdir(parents=True, exist_ok=True)
    with Scene() as scene:
        for case in cases:
            rows.append(run(case, scene, effort))
            print(" | ".join(cells(rows[-1])), flush=True)
        kept = scene.kept()
        shutil.copy(scene.stack.logs / "serve.log", options.output / "serve.log")
    seconds = round(time.monotonic() - began)
    changes = " with changes" if built["modified"] else ""
    memory = measured["memory_bytes"] / 1e9
    circumstances = [
        f"{datetime.now(UTC):%d %B %Y}, commit {built['id']}{changes}, {measured['cpu']} with "
        f"{measured['cores']} cores and {memory:.0f} GB, {measured['kernel']}, "
        f"{effort.turns} turns of {effort.seconds:g} s, {seconds} s in all, "
        f"load average before {average:.1f}, {_sharing()}. "
        f"{kept // MIB} MiB of memory more than before the first case stay after the last.",
        "",
    ]
    file = options.output / "attack.md"
    table = markdown(rows, circumstances)
    file.write_text(table)
    if options.docs:
        insert(repository() / "docs" / "security.md", "attacks", table)
    print(f"\n{summary(rows)}; the table is in {file}")
    return int(kept > KEPT or not all(row.expected for row in rows))


def _sharing() -> str:
    """The way in which the kernel shares processors, as text."""
    file = Path("/proc/sys/kernel/sched_autogroup_enabled")
    grouped = file.exists() and file.read_text().strip() == "1"
    return "processors shared by session" if grouped else "processors shared by priority"


if __name__ == "__main__":
    sys.exit(main())
