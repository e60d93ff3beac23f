"""The start of a batch job of which much is done."""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from outrigger_testenv.bench.batch import job
from outrigger_testenv.bench.batch.hosts import Host, running
from outrigger_testenv.bench.batch.server import MODEL
from outrigger_testenv.bench.figure import FULL, Effort, Measurement
from outrigger_testenv.bench.setup import Setup

# The host does no work.
_HOST = {"slots": [(0, 1000)], "service": 0.0, "width": 1}
_CHUNK = 9_900
# The chunks that are committed and those that are not; with less effort.
_COMMITTED, _LEFT, _FEW = 10_000, 102, 500
_GROUP = 1 << 20
_REPEATS = 3


def first_request(_: Setup, effort: Effort) -> Measurement:
    """The seconds from the start of a job of 100 million rows, of which 10,000 chunks are
    committed, to its first request.
    """
    committed = _COMMITTED if effort == FULL else _FEW
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        directory = Path(name)
        rows = (committed + _LEFT) * _CHUNK
        source = _rows(directory / "rows.parquet", rows)
        with running(directory, {"host": _HOST}) as hosts:
            (host,) = hosts.values()
            output = directory / "out"
            given = job.settings(source, output, MODEL, [host.endpoint], keys=[])
            given |= {"chunk_rows": _CHUNK, "batch_size": _CHUNK}
            _begun(given)
            _commit(output, committed)
            host.stop()
            samples = [_first(given, host) for _ in range(_REPEATS)]
    return Measurement(samples, {"rows": rows, "commits": committed})


def _rows(file: Path, count: int) -> Path:
    """Rows of equal numbers, which take little room."""
    schema = pa.schema([("x", pa.float32())])
    numbers = pa.table([pa.array(np.full(_GROUP, 0.5, "f4"))], schema=schema)
    with pq.ParquetWriter(file, schema) as writer:
        for start in range(0, count, _GROUP):
            writer.write_table(numbers.slice(0, min(_GROUP, count - start)))
    return file


def _begun(given: dict[str, Any]) -> None:
    """Runs a job until it has committed a chunk."""
    commits = Path(given["output"]) / "commit"
    with job.started(given) as process:
        process.wait_until(lambda: any(commits.glob("[0-9]*.json")))


def _commit(output: Path, count: int) -> None:
    """Commits all of the first chunks, with the output of one that is committed."""
    commits = output / "commit"
    file = next(commits.glob("[0-9]*.json"))
    commit = json.loads(file.read_text())
    data = output / commit["data"]["name"]
    for chunk in range(count):
        name = f"{chunk:08}"
        if (commits / f"{name}.json").exists():
            continue
        copy = f"data/{name}-{commit['attempt']}.parquet"
        if not (output / copy).exists():
            os.link(data, output / copy)
        named = {**commit, "chunk": chunk, "data": {**commit["data"], "name": copy}}
        (commits / f"{name}.json").write_text(json.dumps(named, indent=2) + "\n")


def _first(given: dict[str, Any], host: Host) -> float:
    """Goes on with a job until its first request."""
    host.start()
    began = time.time()
    with job.started(given) as process:
        process.wait_until(lambda: host.first() is not None)
    taken = host.first() - began
    host.stop()
    return taken
