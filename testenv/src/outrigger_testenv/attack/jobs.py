"""Batch jobs: their listener, and files of theirs or of their input that others have written."""

import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Act, Case, Turn
from outrigger_testenv.attack.scene import Scene
from outrigger_testenv.binary import outrigger
from outrigger_testenv.processes import Process, free_ports, listens

# More than the places of the listener.
_IDLE = 200
_ANSWER = 1.0
_END = 20.0
# The rows of a job, and the seconds that a message takes.
_ROWS, _RUN = 2000, 0.05
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


class _Model(BaseHTTPRequestHandler):
    """A model that returns its input, slowly and in JSON only."""

    protocol_version = "HTTP/1.1"
    TENSOR: ClassVar = {"datatype": "FP32", "shape": [-1, 1]}

    def do_GET(self) -> None:
        """Describes the model, and is ready."""
        described = {
            "inputs": [{"name": "x", **self.TENSOR}],
            "outputs": [{"name": "y", **self.TENSOR}],
        }
        self._answer(200, {"name": "m", "versions": ["1"], "platform": "p", **described})

    def do_POST(self) -> None:
        """Answers with the input."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if "inference-header-content-length" in self.headers:
            return self._answer(400, {"error": "failed to parse the request JSON buffer"})
        time.sleep(_RUN)
        asked = json.loads(body)
        outputs = [{**asked["inputs"][0], "name": "y"}]
        answer = {"model_name": "m", "model_version": "1", "id": asked["id"], "outputs": outputs}
        return self._answer(200, answer)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _links(scene: Scene, turn: Turn) -> str:
    """Replaces the directory of a running job's chunks by a link to files of others."""
    parent = scene.directory / f"jobs-links-{turn.number}"
    elsewhere, out = parent / "elsewhere", parent / "out"
    elsewhere.mkdir(parents=True)
    theirs = {"00000000-00000000.parquet": b"theirs", ".outrigger-0": b"theirs"}
    for name, content in theirs.items():
        (elsewhere / name).write_bytes(content)
    (parent / "rows.csv").write_text("x\n" + "".join(f"{row}\n" for row in range(_ROWS)))
    with ExitStack() as open_:
        server = open_.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), _Model))
        threading.Thread(target=server.serve_forever).start()
        open_.callback(server.shutdown)
        command = [outrigger(), "batch", "run", "--input", parent / "rows.csv", "--to", out]
        command += ["--model", "m", "--host", f"http://127.0.0.1:{server.server_port}"]
        command += ["--chunk-rows", "50", "--batch-size", "50"]
        job = Process("job", command, parent / "job.log")
        open_.callback(job.kill)
        job.start()
        job.wait_until(lambda: any((out / "data").glob("*")), _END)
        (out / "data").rename(parent / "moved")
        (out / "data").symlink_to(elsewhere)
        job.wait_until_ended(_END)
        _ended("verify", out)
        _ended("compact", out, parent / "compacted")
    found = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    if found != theirs:
        raise Broken(f"files of others: {sorted(found)}")
    return f"untouched; the job ended with {job.exit_code}"


def _case(name: str, about: str, attack: Callable[[Scene, Turn], str]) -> Case:
    return Case(name, about, attack, probes=(), neighbour=None, turns=1)


CASES = [
    _case("job-listener", f"{_IDLE} connections to a job's listener that read nothing", _listener),
    _case("job-pipe", "a named pipe as the input of a job", _pipe),
    _case("job-links", "a link in the place of a running job's directory of chunks", _links),
    _case("job-chunks", "a job's plan with chunks of no rows", _plan(5, 0, "m", {1})),
    _case("job-names", "a job's plan with control characters", _plan(5, 2, _HOSTILE, {0})),
]
