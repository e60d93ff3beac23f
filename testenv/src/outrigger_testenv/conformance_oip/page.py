"""`make conformance-oip-page`: writes the table of the checks into docs/oip.md.

It starts the three other servers. Outrigger has a column if --rest and --grpc say where it runs.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from outrigger_testenv import marks
from outrigger_testenv.binary import repository
from outrigger_testenv.conformance_oip import table
from outrigger_testenv.conformance_oip.check import Check, Outcome
from outrigger_testenv.conformance_oip.runs import checks_of, tried
from outrigger_testenv.conformance_oip.server import Place, Server
from outrigger_testenv.oip.models import UNREADY
from outrigger_testenv.oip.peers import PEERS, Peer

PAGE, MARK = "docs/oip.md", "checks"


def of_peer(name: str, directory: Path, chosen: Sequence[Check]) -> list[Outcome]:
    """What the checks see of another server, which is started for it. Raises Missing or
    ProcessError.
    """
    kind = PEERS[name]
    with kind(directory / name) as peer, kind(directory / f"{name}-unready", [UNREADY]) as unready:
        server = Server(_place(peer), _place(unready))
        return tried(chosen, server, lambda each: print(f"{name}\n{table.text(each)}", flush=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0."""
    parser = argparse.ArgumentParser(prog="make conformance-oip-page", description=__doc__)
    parser.add_argument("--rest", default="", metavar="ADDRESS", help="HOST:PORT of REST")
    parser.add_argument("--grpc", default="", metavar="ADDRESS", help="HOST:PORT of gRPC")
    options = parser.parse_args(arguments)
    chosen, columns = checks_of(""), {}
    if options.rest:
        server = Server(Place(options.rest, options.grpc))
        columns["Outrigger"] = tried(chosen, server, lambda each: print(table.text(each)))
    with tempfile.TemporaryDirectory(prefix="outrigger-oip-") as directory:
        for name in PEERS:
            columns[name] = of_peer(name, Path(directory), chosen)
    marks.insert(repository() / PAGE, MARK, table.markdown(columns))
    return 0


def _place(peer: Peer) -> Place:
    return Place(peer.rest, peer.grpc)


if __name__ == "__main__":
    sys.exit(main())
