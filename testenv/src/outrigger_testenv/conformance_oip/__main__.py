"""`make conformance-oip`: compares a server with the rules for servers of the Open Inference
Protocol.

The server has the models that `outrigger_testenv.oip.models` lists. The checks go to standard
output as they are tried; --output also writes them as Markdown.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from outrigger_testenv.conformance_oip import table
from outrigger_testenv.conformance_oip.runs import checks_of, tried
from outrigger_testenv.conformance_oip.server import Place, Server


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if the server obeys every check, 1 if it does not, 2 if it cannot be tried, 64 if
    no check has such a number.
    """
    options = _parser().parse_args(arguments)
    chosen = checks_of(options.only)
    if not chosen:
        print(f"no check is named {options.only}")
        return 64
    server = Server(
        Place(options.rest, options.grpc),
        Place(options.unready_rest, options.unready_grpc) if options.unready_rest else None,
        options.repository,
        options.largest,
    )
    try:
        outcomes = tried(chosen, server, lambda each: print(table.text(each), flush=True))
    except (OSError, RuntimeError) as error:
        print(f"the server cannot be tried: {error}", file=sys.stderr)
        return 2
    print(f"\n{table.summary(outcomes)}")
    if options.output:
        options.output.write_text(table.markdown({options.name: outcomes}))
    return int(not all(outcome.is_whole for outcome in outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make conformance-oip", description=__doc__)
    add = parser.add_argument
    add("--rest", required=True, metavar="ADDRESS", help="HOST:PORT of REST")
    add("--grpc", required=True, metavar="ADDRESS", help="HOST:PORT of gRPC")
    add("--unready-rest", default="", metavar="ADDRESS", help="a server with the model `never`")
    add("--unready-grpc", default="", metavar="ADDRESS", help="the same over gRPC")
    add("--repository", default="", metavar="ADDRESS", help="gRPC with load and unload")
    add("--largest", type=int, metavar="BYTES", help="the largest message over gRPC")
    add("--only", default="", metavar="NUMBERS", help="checks such as S17,S20")
    add("--name", default="server", help="the heading of the server in the table")
    add("--output", type=Path, metavar="FILE", help="for the table as Markdown")
    return parser


if __name__ == "__main__":
    sys.exit(main())
