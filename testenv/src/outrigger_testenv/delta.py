"""Outputs of batch jobs for the tests of `outrigger-delta`, and processes that append them."""

import importlib.util
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from outrigger_testenv import tools

COMMAND = (sys.executable, "-m", "outrigger_delta")
_START = 120.0


def needs_delta() -> None:
    """Skips the test if the package or its client of Delta Lake is not installed. With CI set, it
    fails instead.
    """
    for name in ("deltalake", "outrigger_delta"):
        if importlib.util.find_spec(name) is None:
            tools.skip(f"{name} is not installed: see `make venv`")


def rows(ids: Iterable[int]) -> pa.Table:
    """Rows with a key, a score and an embedding."""
    ids = list(ids)
    scores = pa.array([each / 7 for each in ids], pa.float32())
    embeddings = pa.array([[float(each), each / 3] for each in ids], pa.list_(pa.float32()))
    return pa.table({"id": pa.array(ids, pa.int64()), "score": scores, "embedding": embeddings})


def write_output(directory: Path, tables: list[pa.Table], job: str = "job-1") -> Path:
    """Writes the output of a finished job with a file for each table, as `outrigger batch run`
    does but for what `outrigger-delta` does not read. Returns the directory.
    """
    (directory / "data").mkdir(parents=True)
    chunks = []
    for number, table in enumerate(tables):
        name = f"data/{number:08}-{job}.parquet"
        pq.write_table(table, directory / name)
        data = {"name": name, "bytes": (directory / name).stat().st_size}
        chunks.append({"chunk": number, "scored": len(table), "data": data})
    manifest = {"job": job, "scored": sum(map(len, tables)), "chunks": chunks}
    (directory / "plan.json").write_text("{}")
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def at_once(rounds: list[list[tuple[str, str]]]) -> list[list[bool]]:
    """Appends in processes that begin each round together: a round has an output and a table for
    each process. Returns for each round and process whether it was the one that appended. Raises
    RuntimeError with the message of an append that failed.
    """
    spawn = multiprocessing.get_context("spawn")
    count = len(rounds[0])
    start, ended = spawn.Barrier(count), spawn.Queue()
    work: Callable = _append_each
    processes = [
        spawn.Process(target=work, args=(index, [each[index] for each in rounds], start, ended))
        for index in range(count)
    ]
    for process in processes:
        process.start()
    try:
        found = dict(ended.get(timeout=_START) for _ in processes)
    finally:
        for process in processes:
            process.kill()
            process.join()
    problems = [each for ends in found.values() for each in ends if isinstance(each, str)]
    if problems:
        raise RuntimeError("; ".join(problems))
    return [[found[index][number] for index in range(count)] for number in range(len(rounds))]


def _append_each(index, pairs, start, ended) -> None:
    """Appends an output to a table in each round; a text is the message of an error."""
    from outrigger_delta import DeltaAppendError, append

    ends: list[bool | str] = []
    for output, table in pairs:
        start.wait(_START)
        try:
            ends.append(append(output, table).is_new)
        except DeltaAppendError as error:
            ends.append(str(error))
    ended.put((index, ends))
