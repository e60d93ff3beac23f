"""`make conformance`: compares an engine with the documented behaviour of TensorFlow Serving.

The rows go to standard output as they are tried; --output also writes them as Markdown.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from outrigger_testenv.conformance import rows, table
from outrigger_testenv.conformance.row import DIFFERS, Outcome, run
from outrigger_testenv.conformance.scene import Scene


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if no row differs, 1 if one does, 2 if the engine cannot be tried, 64 if no row has
    the prefix.
    """
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("--engine", required=True, metavar="ADDRESS", help="HOST:PORT or unix:PATH")
    parser.add_argument(
        "--models",
        required=True,
        type=Path,
        metavar="DIR",
        help="a directory that the engine sees under the same path and may write to",
    )
    parser.add_argument("--only", default="", metavar="PREFIX", help="rows with this prefix")
    parser.add_argument("--output", type=Path, metavar="FILE", help="for the table as Markdown")
    options = parser.parse_args(arguments)
    chosen = [row for row in rows.ALL if row.name.startswith(options.only)]
    if not chosen:
        print(f"no row has the prefix {options.only}")
        return 64
    outcomes: list[Outcome] = []
    try:
        with Scene(options.engine, options.models) as scene:
            for row in chosen:
                outcomes.append(run(row, scene))
                print(table.text(outcomes[-1]), flush=True)
    except (OSError, RuntimeError) as error:
        print(f"the engine cannot be tried: {error}", file=sys.stderr)
        return 2
    print(f"\n{table.summary(outcomes)}")
    if options.output:
        options.output.write_text(table.markdown(outcomes))
    return int(any(outcome.verdict == DIFFERS for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
