"""Writes the fixtures of the previous version again: `make upgrade-fixtures`."""

import argparse
import os
from pathlib import Path

from outrigger_testenv.upgrade import chart, configuration, served
from outrigger_testenv.upgrade.previous import previous


def main() -> None:
    """Builds the previous version where none is given, and lets it write everything."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--binary", type=Path, help="the outrigger binary that writes them")
    parser.add_argument("--chart", type=Path, help="the chart that is rendered")
    parser.add_argument("--only", choices=["configuration", "chart", "store"])
    options = parser.parse_args()
    # Read wherever a program is started.
    os.environ["OUTRIGGER_BIN"] = str((options.binary or previous().binary).resolve())
    if options.only in (None, "configuration"):
        configuration.write()
    if options.only in (None, "chart"):
        chart.write(options.chart or previous().chart)
    if options.only in (None, "store"):
        served.write()


if __name__ == "__main__":
    main()
