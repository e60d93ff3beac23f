"""Programs of the repository that measure figures, built by cargo beforehand."""

import json
import os
import shutil
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from outrigger_testenv.bench.figure import Skipped
from outrigger_testenv.binary import repository
from outrigger_testenv.stack import library


@dataclass(frozen=True)
class Program:
    """A cargo target: `kind` is `bench`, `example` or `test`."""

    package: str
    kind: str
    name: str


@dataclass(frozen=True)
class Commit:
    """An earlier commit, as `scripts/build-commit --shipped` has built it."""

    directory: Path

    @property
    def binary(self) -> Path:
        """The binary that it shipped."""
        return self.directory / "outrigger"

    @property
    def transcode(self) -> Path:
        """Its benchmark of the transcoder."""
        return self.directory / "transcode"


TRANSCODE = Program("outrigger-features", "bench", "transcode")
SESSION = Program("outrigger-engine", "bench", "session")
ALLOCATION_COUNTER = Program("outrigger-server", "test", "allocations")
CANARY = Program("outrigger-canary", "bench", "canary")
CANARY_PATH = Program("outrigger-server", "bench", "canary_path")
DISPATCH = Program("outrigger-dispatch", "example", "figures")
ECHO_PROXY = Program("outrigger-bench", "example", "echo_proxy")


def build(programs: Collection[Program]) -> dict[Program, Path]:
    """Builds programs in release mode by one command, and returns their paths.

    Cargo reports progress on standard error. Raises CalledProcessError.
    """
    if not programs:
        return {}
    command = [os.environ.get("CARGO", "cargo"), "build", "--release"]
    for program in programs:
        command += ["--package", program.package, f"--{program.kind}", program.name]
    command.append("--message-format=json-render-diagnostics")
    done = subprocess.run(command, cwd=repository(), stdout=subprocess.PIPE, text=True, check=True)
    built = executables(done.stdout.splitlines())
    # Other packages may have a target of the same name, so the package is part of the key.
    return {program: built[program] for program in programs}


def build_commit(name: str) -> Commit:
    """Builds an earlier commit as it is shipped, or finds it built. Raises CalledProcessError."""
    command = [repository() / "scripts" / "build-commit", "--shipped", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Commit(Path(done.stdout.strip()))


def needs(program: str) -> None:
    """Raises Skipped if a program is not installed."""
    if shutil.which(program) is None:
        raise Skipped(f"{program} is not installed")


def output_of(program: Path, *arguments: str, **variables: str) -> str:
    """The output of a program, run with TensorFlow's path and the given variables in its
    environment. Raises CalledProcessError.
    """
    command = [str(program), *arguments]
    environment = {**os.environ, **library(), **variables}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def executables(messages: Iterable[str]) -> dict[Program, Path]:
    """The paths of the built programs, from cargo's JSON messages."""
    artifacts = (json.loads(line) for line in messages if line.startswith("{"))
    return {
        Program(_package(artifact["package_id"]), kind, artifact["target"]["name"]): Path(
            artifact["executable"]
        )
        for artifact in artifacts
        if artifact["reason"] == "compiler-artifact" and artifact["executable"]
        for kind in artifact["target"]["kind"]
    }


def _package(identity: str) -> str:
    """The name in a package id such as path+file:///crates/server#outrigger-server@0.1.0."""
    return identity.rpartition("#")[2].partition("@")[0]
