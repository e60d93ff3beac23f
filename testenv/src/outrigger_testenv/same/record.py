"""Records the outcomes of cases with the program that OUTRIGGER_BIN names.

python -m outrigger_testenv.same.record --packages DIR --output FILE [--only PREFIX]
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from outrigger_testenv.same import cases, senders, worlds

# Values of metrics depend on times; their names, labels, types and texts do not.
_SAMPLE = re.compile(r"^(# .*|[a-zA-Z0-9_:]+(?:\{.*\})?)(?: |$)", re.MULTILINE)


# The stack that the cases of each kind are sent to.
_WORLDS = (
    (worlds.usual, ("http", "grpc", "oip", "configuration", "commands")),
    (worlds.faults, ("faults", "full", "jobs", "xgboost")),
    (worlds.crowds, ("crowd",)),
)


def record(made: Path, only: str) -> dict[str, Any]:
    """The outcomes by name of case, and the names of metrics after those of each stack."""
    outcomes = {}
    every = cases.read(only)
    for world, kinds in _WORLDS:
        wanted = [case for case in every if case.kind in kinds]
        if not wanted:
            continue
        with world(made) as running:
            for case in wanted:
                try:
                    outcome = running.send(case.content)
                except senders.Unsendable:
                    continue
                outcomes[case.name] = running.mask(outcome, case.kind)
            text = running.stack.serve.get("/metrics")[1]
            outcomes[f"metrics/{world.__name__}"] = running.mask(sorted(set(_SAMPLE.findall(text))))
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    outcomes = record(options.packages, options.only)
    options.output.write_text(json.dumps(outcomes, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
