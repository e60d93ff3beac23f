"""Programs of the repository that figures run, built by cargo before anything is measured."""

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from outrigger_testenv.binary import repository
from outrigger_testenv.stack import library


@dataclass(frozen=True)
class Program:
    """A cargo target: `kind` is `bench`, `example` or `test`."""

    package: str
    kind: str
    name: str


TRANSCODE = Program("outrigger-features", "bench", "transcode")
SESSION = Program("outrigger-engine", "bench", "session")
ALLOCATIONS = Program("outrigger-server", "test", "allocations")
CANARY = Program("outrigger-canary", "bench", "canary")
CANARY_PATH = Program("outrigger-server", "bench", "canary_path")
ECHO_PROXY = Program("outrigger-bench", "example", "echo_proxy")


def build() -> dict[Program, Path]:
    """Builds all of them as releases are built, and says where they are.

    All, and by one command, whichever are needed: packages that are built together
    share the features of their dependencies, and another choice of packages would
    have these built anew. Cargo tells of its progress on standard error.
    Raises CalledProcessError.
    """
    command = [os.environ.get("CARGO", "cargo"), "build", "--release"]
    programs = (TRANSCODE, SESSION, ALLOCATIONS, CANARY, CANARY_PATH, ECHO_PROXY)
    for program in programs:
        command += ["--package", program.package, f"--{program.kind}", program.name]
    command.append("--message-format=json-render-diagnostics")
    done = subprocess.run(command, cwd=repository(), stdout=subprocess.PIPE, text=True, check=True)
    built = executables(done.stdout.splitlines())
    # Other packages may have a target of the same name.
    return {program: built[program] for program in programs}


def output_of(program: Path, *arguments: str, **variables: str) -> str:
    """What a program prints, which is told where TensorFlow is, and what else the
    variables of its environment tell. Raises CalledProcessError."""
    command = [str(program), *arguments]
    environment = {**os.environ, **library(), **variables}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def executables(messages: Iterable[str]) -> dict[Program, Path]:
    """Where what was built is, by cargo's JSON messages."""
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
