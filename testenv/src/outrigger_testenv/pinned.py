"""Programs of other projects with pinned versions, each in a directory of its own in the cache
outside the repository. A changed file of requirements makes a new directory.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from outrigger_testenv import caches, tools

# Installs what a file of requirements names into a directory. Raises OSError or CalledProcessError.
Install = Callable[[Path, Path], object]


class Missing(RuntimeError):
    """Something is not there and cannot be made; the message says why."""


def with_pip(place: Path, requirements: Path) -> None:
    """Makes an environment of Python."""
    # The files name all dependencies but those that are not used.
    caches.environment(place, ["--no-deps", "--requirement", str(requirements)])


def with_npm(place: Path, requirements: Path) -> None:
    """Installs packages of npm: one line has npm's arguments. No script of a package is run."""

    def make(complete: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        lines = requirements.read_text().splitlines()
        arguments = [part for line in lines if not line.startswith("#") for part in line.split()]
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        subprocess.run(["npm", "install", "--prefix", place, *quiet, *arguments], check=True)
        (complete / "requirements").write_text("\n".join(lines) + "\n")

    caches.made(caches.complete_mark(place), make)


@dataclass(frozen=True)
class Pinned:
    """The packages of a file of requirements, in the directory `kind` of the cache. `target` of the
    Makefile installs them.
    """

    kind: str
    requirements: Path
    target: str
    install: Install = with_pip

    @property
    def name(self) -> str:
        """The name of the file without its ending."""
        return self.requirements.stem

    @property
    def place(self) -> Path:
        """The directory, which may not exist."""
        return caches.root() / self.kind / f"{self.name}-{caches.digest(self.requirements)}"

    @property
    def is_installed(self) -> bool:
        """True if the directory is complete."""
        return caches.complete_mark(self.place).is_dir()

    def directory(self) -> Path:
        """The directory, made if it is not there yet. Raises Missing."""
        place = self.place
        if self.is_installed:
            return place
        try:
            self.install(place, self.requirements)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(place, ignore_errors=True)
            file = self.requirements.name
            raise Missing(f"{file} cannot be installed: {error}") from error
        caches.remove_others(place)
        return place

    def python(self) -> Path:
        """The interpreter of an environment of Python. Raises Missing."""
        return self.directory() / "bin" / "python"

    def installed_python(self) -> Path:
        """The interpreter if it is in the cache. Raises Missing if it is not."""
        if not self.is_installed:
            raise Missing(f"{self.name} is not installed; `make {self.target}` does it")
        return self.python()


def needs(*wanted: Pinned) -> None:
    """Skips the test if something cannot be had. With CI set, it fails instead."""
    for each in wanted:
        try:
            each.directory()
        except Missing as missing:
            tools.skip(str(missing))


def fill(wanted: Iterable[Pinned]) -> int:
    """Installs everything; returns 0 if all are there, 1 if one cannot be installed."""
    status = 0
    for each in wanted:
        try:
            print(f"{each.name}: {each.directory()}", flush=True)
        except Missing as missing:
            print(f"{each.name}: {missing}", file=sys.stderr)
            status = 1
    return status
