"""Batch jobs: their listener, and files of theirs or of their input that others have written."""

import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Act, Case, Turn
from outrigger_testenv.attack.scene import Scene
from outrigger_testenv.binary import outrigger
from outrigger_testenv.processes import Process, free_ports, listens

# More than the places of the listener.
_IDLE = 200
_ANSWER = 1.0
_END = 20.0
# A terminal's title, its screen, a line of its own, and text in the other direction.
_HOSTILE = "m\x1b]0;title\x07\x1b[2J\nforged\x9b1m\u202e"
_CONTROL = re.compile("[^\n -~\u00a0-\u2027\u202f-\u2065\u206a-\uffff]")


def _ended(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a command of a job to its end."""
    command = [outrigger(), "batch", *arguments]
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_END)
    except subprocess.TimeoutExpired:
        raise Broken(f"{arguments[0]} does not end") from None
    if ended.returncode not in (0, 1, 2, 64) or "panicked" in ended.stderr:
        raise Broken(f"{arguments[0]} ended with {ended.returncode}: {ended.stderr[-200:]}")
    if raw := _CONTROL.search(ended.stdout + ended.stderr):
        raise Broken(f"{arguments[0]} prints {raw[0]!r}")
    return ended


def _listener(scene: Scene, turn: Turn) -> str:
    (port,) = free_ports(1)
    place = _job(scene.directory / f"jobs-listener-{turn.number}", _planned(5, 2, "m"))
    command = [outrigger(), "batch", "status", place, "--listen", f"127.0.0.1:{port}"]
    job = Process("job", command, scene.directory / "jobs.log")
    with ExitStack() as open_:
        open_.callback(job.stop)
        job.start()
        job.wait_until(lambda: listens(port))
        slowest = 0.0
        for _ in range(_IDLE):
            idle = open_.enter_context(socket.create_connection(("127.0.0.1", port)))
            idle.sendall(b"GET /ui HTTP/1.1\r\nhost: localhost\r\n\r\n")
            before = time.monotonic()
            caller = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER)
            caller.request("GET", "/healthz")
            if caller.getresponse().status != 200:
                raise Broken("the listener is not alive")
            caller.close()
            slowest = max(slowest, time.monotonic() - before)
        return f"{_IDLE} answers within {slowest:.2f} s"


def _pipe(scene: Scene, turn: Turn) -> str:
    pipe = scene.directory / f"jobs-{turn.number}.csv"
    os.mkfifo(pipe)
    to = scene.directory / f"jobs-out-{turn.number}"
    ended = _ended("run", "--input", pipe, "--to", to, "--model", "m", "--host", "127.0.0.1:9")
    if (ended.returncode, "not a regular file" in ended.stderr) != (64, True):
        raise Broken(f"the pipe is read: {ended.returncode} {ended.stderr}")
    return "refused"


def _planned(rows: int, chunk_rows: int, model: str) -> str:
    """A plan that somebody else has written."""
    scoring = {
        "files": [{"path": "rows.csv", "size": 1, "modified": 1, "rows": rows}],
        "format": "csv",
        "types": [],
        "model": model,
        "version": None,
        "is_pinned": False,
        "inputs": [],
        "keys": [],
        "outputs": [],
        "chunk_rows": chunk_rows,
        "output_format": "parquet",
    }
    compact = json.dumps(scoring, separators=(",", ":"), ensure_ascii=False)
    fingerprint = hashlib.sha256(compact.encode()).hexdigest()
    plan = {"format": 2, "job": "j", "created": _HOSTILE, "fingerprint": fingerprint}
    return json.dumps(plan | {"scoring": scoring, "answer_bytes": 1})


def _job(place: Path, plan: str) -> Path:
    place.mkdir(parents=True)
    (place / "plan.json").write_text(plan)
    return place


def _plan(rows: int, chunk_rows: int, model: str, codes: set[int]) -> Act:
    def act(scene: Scene, turn: Turn) -> str:
        parent = scene.directory / f"jobs-{rows}-{chunk_rows}-{turn.number}"
        job = _job(parent / "job", _planned(rows, chunk_rows, model))
        for verb, place in [("status", job), ("list", parent), ("verify", job)]:
            ended = _ended(verb, place)
            shown = ended.stdout + ended.stderr
            if verb != "verify" and ended.returncode not in codes:
                raise Broken(f"{verb} ended with {ended.returncode}: {shown}")
            if "\nforged" in shown:
                raise Broken(f"{verb} prints a line of the plan's")
        return "ends with 1" if codes == {1} else "printed as escapes"

    return act


def _case(name: str, about: str, attack: Callable[[Scene, Turn], str]) -> Case:
    return Case(name, about, attack, probes=(), neighbour=None, turns=1)


CASES = [
    _case("job-listener", f"{_IDLE} connections to a job's listener that read nothing", _listener),
    _case("job-pipe", "a named pipe as the input of a job", _pipe),
    _case("job-chunks", "a job's plan with chunks of no rows", _plan(5, 0, "m", {1})),
    _case("job-names", "a job's plan with control characters", _plan(5, 2, _HOSTILE, {0})),
]
