"""`make conformance-oip-page`: writes the table of the checks into docs/oip.md.

It starts Outrigger and the three other servers.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from outrigger_testenv import marks
from outrigger_testenv.binary import repository
from outrigger_testenv.conformance_oip import table
from outrigger_testenv.conformance_oip.check import Check, Outcome
from outrigger_testenv.conformance_oip.runs import checks_of, tried
from outrigger_testenv.conformance_oip.server import Place, Server
from outrigger_testenv.oip import outrigger
from outrigger_testenv.oip.models import UNREADY
from outrigger_testenv.oip.peers import PEERS, Peer

PAGE, MARK = "docs/oip.md", "checks"


def of_peer(name: str, directory: Path, chosen: Sequence[Check]) -> list[Outcome]:
    """The outcomes of the checks for another server, which is started for it. Raises Missing or
    ProcessError.
    """
    kind = PEERS[name]
    with kind(directory / name) as peer, kind(directory / f"{name}-unready", [UNREADY]) as unready:
        server = Server(_place(peer), _place(unready), largest=peer.largest)
        return tried(chosen, server, _show(name))


def of_outrigger(chosen: Sequence[Check]) -> list[Outcome]:
    """The outcomes of the checks for Outrigger, which is started for it."""
    with outrigger.checked() as server:
        return tried(chosen, server, _show("Outrigger"))


def main() -> int:
    """Returns 0."""
    chosen = checks_of("")
    columns = {"Outrigger": of_outrigger(chosen)}
    with tempfile.TemporaryDirectory(prefix="outrigger-oip-") as directory:
        for name in PEERS:
            columns[name] = of_peer(name, Path(directory), chosen)
    marks.insert(repository() / PAGE, MARK, table.markdown(columns))
    return 0


def _show(name: str) -> Callable[[Outcome], None]:
    return lambda outcome: print(f"{name} {table.text(outcome)}", flush=True)


def _place(peer: Peer) -> Place:
    return Place(peer.rest, peer.grpc)


if __name__ == "__main__":
    sys.exit(main())
