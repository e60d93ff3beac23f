"""Validation of files: its rate, and what online requests notice of it."""

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from outrigger_testenv.bench.figure import FULL, Effort, Failed, Measurement
from outrigger_testenv.bench.generator import CLOSED_LOOP, Report, execute, rate, run
from outrigger_testenv.bench.setup import COLUMNAR, MODEL, Setup, new_stack, through
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import Client
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.stack import Stack

# The users of a call, and the treatments of each user.
_USERS, _OFFERS = 64, 8
# The calls of the command that are made at once.
_CALLS = 2
# The users of the file that only shows what the start of the command takes.
_FEW = 10 * _USERS
# The part of the capacity that online requests take.
_ONLINE = 0.3
_FILE = "rows.csv"


def many(effort: Effort) -> int:
    """The users of the file that is scored: a million rows with full effort."""
    return (1_000_000 if effort == FULL else 50_000) // _OFFERS


def rows(setup: Setup, effort: Effort) -> Measurement:
    """Rows a second of the command, divided by those of the engine called directly."""
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        directory = Path(name)
        turns = in_turns(
            effort.repeats,
            lambda: _command(setup.package, directory, effort),
            lambda: _direct(setup, effort),
        )
    return _shares(turns)


def pandas_rows(setup: Setup, effort: Effort) -> Measurement:
    """Rows a second of pandas and TensorFlow, divided by those of the engine called directly."""
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        file = _file(Path(name), many(effort))
        score = _tensorflow(setup.package)
        turns = in_turns(
            effort.repeats, lambda: _pandas(file, score), lambda: _direct(setup, effort)
        )
    return _shares(turns)


def _shares(turns: list[tuple[float, ...]]) -> Measurement:
    samples = [rate / direct for rate, direct in turns]
    conditions = {"users_per_call": _USERS, "treatments": _OFFERS}
    runs = [{"rows_per_second": rate, "direct": direct} for rate, direct in turns]
    return Measurement(samples, conditions, runs)


def p99(setup: Setup, effort: Effort) -> Measurement:
    """The 99th percentile of requests at a part of the capacity while the pod validates a file,
    divided by that without.
    """
    with tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name:
        _file(Path(name), many(effort))
        with new_stack({"validation": {"directory": name}}) as stack:
            setup.serve_model(stack)
            side = through(stack, setup.package, COLUMNAR)
            load = rate(_ONLINE * run(side, CLOSED_LOOP, effort).throughput)
            scored = []

            def beside() -> Report:
                with _validating(stack) as count:
                    before, began = count(), time.monotonic()
                    report = run(side, load, effort)
                    scored.append((count() - before) / (time.monotonic() - began))
                return report

            turns = in_turns(effort.repeats, beside, lambda: run(side, load, effort))
    samples = [during.p99 / usual.p99 for during, usual in turns]
    conditions = {"load": list(load), "rows_per_second": scored}
    return Measurement(samples, conditions, [report.raw() for turn in turns for report in turn])


def _command(package: ModelPackage, directory: Path, effort: Effort) -> float:
    """Rows a second of the command, without its start."""

    def seconds(users: int) -> float:
        command = [outrigger(), "validate", package.directory, "--input", _file(directory, users)]
        began = time.monotonic()
        done = subprocess.run([str(each) for each in command], capture_output=True, check=False)
        if done.returncode != 0:
            raise Failed(f"validate: {done.stdout.decode()}{done.stderr.decode()}")
        return time.monotonic() - began

    few, users = seconds(_FEW), many(effort)
    return (users - _FEW) * _OFFERS / (seconds(users) - few)


def _direct(setup: Setup, effort: Effort) -> float:
    """Rows a second of the engine with the same tensors, packed beforehand."""
    side = setup.direct()
    command = [str(outrigger()), "bench", *side.arguments, "--max", "--in-flight", str(_CALLS)]
    command += ["--users", str(_USERS), "--treatments", str(_OFFERS)]
    command += ["--warmup", f"{effort.warmup:g}s", "--duration", f"{effort.measured:g}s"]
    report = execute(side.name, [*command, "--output", "json", "--quiet"])
    return report.throughput * _USERS * _OFFERS


def _tensorflow(package: ModelPackage):
    """A function that scores the rows of whole users in a frame."""
    import tensorflow as tf

    model = tf.saved_model.load(str(package.saved_model))
    signature = model.signatures["serving_default"]

    def score(frame: pd.DataFrame) -> np.ndarray:
        def columns(kind: str) -> np.ndarray:
            names = [name for name in frame.columns if name.startswith(f"{kind}_feature")]
            return frame[names].to_numpy("f4").reshape(-1, _OFFERS, len(names))

        users = columns("user")[:, 0]
        count = tf.fill([len(users)], _OFFERS)
        offers = tf.constant(columns("treatment"))
        return signature(user=users, treatment=offers, treatment_count=count)["scores"].numpy()

    return score


def _pandas(file: Path, score) -> float:
    """Rows a second of reading a file and scoring its users."""
    began, count = time.monotonic(), 0
    for frame in pd.read_csv(file, chunksize=_USERS * _OFFERS):
        count += score(frame).size
    return count / (time.monotonic() - began)


def _file(directory: Path, users: int) -> Path:
    """A file with the rows of that many users: CSV, in the row form."""
    file = directory / (_FILE if users > _FEW else f"few-{_FILE}")
    if not file.exists():
        file.write_bytes(_csv(users))
    return file


@cache
def _csv(users: int) -> bytes:
    from outrigger_testenv.reference import reference_frames

    people, offers = reference_frames(users, _OFFERS)
    rows = people.loc[people.index.repeat(_OFFERS)].rename_axis("user").reset_index()
    return (
        rows.join(pd.concat([offers.reset_index(drop=True)] * users, ignore_index=True))
        .to_csv(index=False, float_format="%.6g")
        .encode()
    )


@contextmanager
def _validating(stack: Stack) -> Iterator:
    """Has the pod validate the file again and again; gives the count of rows scored so far."""
    token = stack.serve.token.read_text().strip()
    client, begun, failures = Client(stack.serve.admin), threading.Event(), []
    counts = {"done": 0, "running": 0}

    def seen(progress) -> None:
        counts["running"] = progress.rows
        if progress.rows > 0:
            begun.set()

    def validate() -> None:
        while not stopped.is_set():
            try:
                report = client.score_file(MODEL, _FILE, token=token, progress=seen)
                counts["done"], counts["running"] = counts["done"] + report.rows, 0
            except (OutriggerError, ValueError) as error:
                # The run before may end just now, and a closed client fails.
                if not stopped.is_set() and getattr(error, "reason", "") != "OVERLOADED":
                    failures.append(error)
                    begun.set()
                    return

    stopped, thread = threading.Event(), threading.Thread(target=validate)
    thread.start()
    try:
        if not begun.wait(60) or failures:
            raise Failed(f"no validation is in progress: {failures}")
        yield lambda: counts["done"] + counts["running"]
        if failures:
            raise Failed(f"the validation failed: {failures}")
    finally:
        stopped.set()
        client.close()
        thread.join()
