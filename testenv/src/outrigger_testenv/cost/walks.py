"""Prints what runs in one request: files, crates and functions of this repository.

python -m outrigger_testenv.cost.walks [--functions] [REQUEST...]
"""

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

from outrigger_testenv.binary import outrigger
from outrigger_testenv.cost import parts

WALKS = ("grpc-columnar", "oip-binary", "batch-row", "pushed-tag")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--functions", action="store_true", help="print each file's functions")
    parser.add_argument("requests", nargs="*", default=WALKS)
    options = parser.parse_args()
    for name in options.requests:
        with tempfile.TemporaryDirectory(prefix="walk-") as directory:
            ran = own(parts.walk(name, outrigger(), Path(directory)))
        crates = {file.split("/")[0] for file in ran}
        functions = sum(map(len, ran.values()))
        print(f"{name}: {len(ran)} files, {len(crates)} crates, {functions} functions")
        for file, of_file in sorted(ran.items()) if options.functions else ():
            print(f"  {file}: {', '.join(sorted(of_file))}")


def own(ran: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The functions by the file in `crates` that has them."""
    found: dict[str, set[str]] = {}
    for path, function in ran:
        _, crates, file = path.rpartition("crates/")
        if crates and "/.cargo/" not in path:
            found.setdefault(file, set()).add(function)
    return found


if __name__ == "__main__":
    main()
