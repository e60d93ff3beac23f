"""Processes that each score with one library. They are asked by turns, one at a time."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from outrigger_testenv.bench.figure import Failed, Skipped
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.binary import repository

OURS = "ours"
SOURCE = repository() / "testenv" / "peers"

# The environment in which every library uses one thread.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_NEEDED_BY_HESSBOOST = (1, 93)


class Worker:
    """A process that answers each line with a line of JSON. Use it as a context manager."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
    ):
        self.name = name
        self._child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, **(environment or {})},
            text=True,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        self._child.kill()
        self._child.communicate()

    def wait_until_ready(self) -> None:
        """Waits until the process has loaded its models. Raises Failed if it ends before."""
        # Libraries may print lines of their own while they load.
        while self._line() != "ready":
            pass

    def ask(self, *words: object) -> Any:
        """The answer to a question. Raises Failed if the process ends instead."""
        try:
            print(*words, file=self._child.stdin, flush=True)
        except BrokenPipeError:
            raise self._failed() from None
        return json.loads(self._line())

    def _line(self) -> str:
        line = self._child.stdout.readline()
        if not line:
            raise self._failed()
        return line.strip()

    def _failed(self) -> Failed:
        return Failed(f"{self.name} ended with {self._child.wait()}; its errors are above")


@contextmanager
def started(*workers: Worker):
    """Waits until all workers are ready, and ends them in the end."""
    with ExitStack() as stack:
        for worker in workers:
            stack.enter_context(worker)
        for worker in workers:
            worker.wait_until_ready()
        yield workers


def seconds_by_turns(
    workers: Sequence[Worker], repeats: int, *question: object
) -> list[tuple[float | None, ...]]:
    """The answers of all workers to a question, for each turn."""
    asked = [lambda worker=worker: worker.ask(*question) for worker in workers]
    return in_turns(repeats, *asked)


@cache
def program() -> Path:
    """The program with this project's kernels and XGBoost's C interface, built in release mode.
    Raises CalledProcessError.
    """
    return _built("peers", [], {})


@cache
def hessboost_program() -> Path:
    """The program with hessboost, compiled for this processor, which it has no other code for.
    Raises CalledProcessError, or Skipped if the compiler is too old.
    """
    version = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True)
    major, minor, *_ = version.stdout.split()[1].split(".")
    if (int(major), int(minor)) < _NEEDED_BY_HESSBOOST:
        raise Skipped(f"hessboost needs Rust 1.93, this is {major}.{minor}")
    native = {"RUSTFLAGS": "-C target-cpu=native"}
    return _built("peers-hessboost", ["--features", "hessboost"], native)


def _built(directory: str, arguments: Sequence[str], variables: Mapping[str, str]) -> Path:
    # Not in the directory of the workspace, which has other flags and versions.
    target = repository() / "target" / directory
    command = [os.environ.get("CARGO", "cargo"), "build", "--release", "--locked", *arguments]
    command += ["--manifest-path", SOURCE / "Cargo.toml", "--target-dir", target]
    environment = {**os.environ, **variables}
    subprocess.run([str(part) for part in command], env=environment, check=True)
    return target / "release" / "outrigger-peers"
