"""The same batch job over each form of messages."""

import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

from outrigger_testenv.bench.batch import job
from outrigger_testenv.bench.batch.rivals import BATCH
from outrigger_testenv.bench.batch.rows import Rows
from outrigger_testenv.bench.batch.speed import WIDTH, triton
from outrigger_testenv.bench.figure import FULL, Effort, Failed, Measurement
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.oip.models import HESITANT, Served
from outrigger_testenv.oip.peers import Peer

JSON, BINARY, GRPC = FORMS = ("json", "binary", "grpc")

# The first request of a client fails. Over HTTP that is one with binary tensors, so the client goes
# on with JSON.
_FIRST_FAILS = Served(HESITANT, dimensions=(-1, WIDTH))
_MODEL = Served("wide", dimensions=(-1, WIDTH))


def rate(form: str, _: Setup, effort: Effort) -> Measurement:
    """Rows a second in a form."""
    return Measurement([turn[form] for turn in _turns(effort)], _conditions(effort))


def ratio(_: Setup, effort: Effort) -> Measurement:
    """Rows a second over gRPC divided by those in JSON."""
    turns = _turns(effort)
    return Measurement([turn[GRPC] / turn[JSON] for turn in turns], _conditions(effort), turns)


def _conditions(effort: Effort) -> dict[str, Any]:
    return {"rows": _count(effort), "width": WIDTH, "rows_per_request": BATCH}


def _count(effort: Effort) -> int:
    return 200_000 if effort == FULL else 20_000


@cache
def _turns(effort: Effort) -> list[dict[str, float]]:
    """One run for the figures of all forms."""
    rows = Rows(_count(effort), WIDTH)
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        directory = Path(name)
        rows.write(directory / "rows.parquet")
        sides = [partial(_rate, form, rows, directory) for form in FORMS]
        turns = in_turns(3 if effort == FULL else 1, *sides)
    return [dict(zip(FORMS, turn, strict=True)) for turn in turns]


def _rate(form: str, rows: Rows, directory: Path) -> float:
    """The rows a second of a job on a Triton of its own, whose model has had no request before."""
    served = _FIRST_FAILS if form == JSON else _MODEL
    with (
        tempfile.TemporaryDirectory(prefix=f"{form}-", dir=directory) as place,
        triton(Path(place), served) as peer,
    ):
        output = Path(place) / "out"
        hosts = [_endpoint(peer, form)]
        source = directory / "rows.parquet"
        ended = job.run(job.settings(source, output, served.name, hosts, batch_size=BATCH))
        if wrong := rows.wrong(output, "OUT_x"):
            raise Failed(f"{form}: {wrong} rows are wrong")
    return rows.count / ended.summary["seconds"]


def _endpoint(peer: Peer, form: str) -> str:
    return peer.grpc if form == GRPC else f"http://{peer.rest}"
