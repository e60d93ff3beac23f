"""Configurations of the previous version, and the settings that it derived from them."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outrigger_testenv.binary import outrigger
from outrigger_testenv.upgrade.places import CONFIGURATION

FILE = CONFIGURATION / "outrigger.yaml"


@dataclass(frozen=True)
class Case:
    """A configuration file, an environment, or both."""

    name: str
    file: Path | None = None
    variables: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The variables of all its files."""
        files = (CONFIGURATION / each for each in self.variables)
        lines = [line for file in files for line in file.read_text().splitlines()]
        return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    @property
    def dumped(self) -> Path:
        """The configuration in force, as the previous version printed it."""
        return CONFIGURATION / "dumped" / f"{self.name}.yaml"

    def serve(self, flag: str) -> subprocess.CompletedProcess[str]:
        """`outrigger serve` with the configuration, the environment and the flag."""
        return serve(flag, self.file, self.environment)


CASES = {
    case.name: case
    for case in (
        Case("file", FILE),
        Case("environment", variables=("outrigger.env",)),
        Case("file-and-environment", FILE, ("outrigger.env",)),
        Case("file-and-opentelemetry", CONFIGURATION / "small.yaml", ("opentelemetry.env",)),
    )
}


def serve(
    flag: str, file: Path | None, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """`outrigger serve` with a flag that makes it stop before it listens."""
    ours = ("OUTRIGGER_", "OTEL_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [outrigger(), "serve", *(["--config", file] if file else []), flag]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**own, **variables}
    )


# Defaults that have changed, by path, as docs/releases.md says: the previous one and the new one.
CHANGED_DEFAULTS = {
    "limits.per_caller": (0, None),
    "limits.per_model": (0, None),
    # The chart sets it, here from a CPU request of 1.
    "server.threads": (0, 1),
}


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Paths at which `now` lacks a value of `before` or has another.

    New keys and changed defaults do not count.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key, value in before.items():
            yield from differences(value, now.get(key), f"{path}.{key}".removeprefix("."))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for at, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from differences(old, new, f"{path}[{at}]")
    elif before != now and CHANGED_DEFAULTS.get(path) != (before, now):
        yield f"{path}: {before!r} became {now!r}"


def write() -> None:
    """Writes the configurations in force anew, by the binary that OUTRIGGER_BIN names."""
    for case in CASES.values():
        done = case.serve("--dump-config")
        if done.returncode != 0:
            raise RuntimeError(f"{case.name}: {done.stderr}")
        case.dumped.parent.mkdir(exist_ok=True)
        case.dumped.write_text(done.stdout)


def dumped(text: str) -> dict[str, Any]:
    """The output of `--dump-config`."""
    return yaml.safe_load(text)
