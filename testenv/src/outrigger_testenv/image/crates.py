"""The crates that a binary of this repository is linked from."""

import os
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from outrigger_testenv.binary import repository

_LINE = re.compile(r"^(\d+)\|(\S+) v(\S+)[^|]*\|([^|]*)\|")


@dataclass(frozen=True, order=True)
class Crate:
    """A crate in one version."""

    name: str
    version: str
    # As Cargo.toml spells it: an SPDX expression, or the older `A/B` for `A OR B`.
    license: str

    @property
    def expression(self) -> str:
        """The licence as an SPDX expression."""
        return re.sub(r"\s*/\s*", " OR ", self.license)


@dataclass(frozen=True)
class Tree:
    """A package and what it is linked from; for each crate, those it uses itself."""

    root: Crate
    uses: Mapping[Crate, frozenset[Crate]]

    @cached_property
    def crates(self) -> list[Crate]:
        """All but the root, sorted."""
        return sorted(self.uses.keys() - {self.root})


def linked(package: str) -> Tree:
    """What cargo links into a package for this machine: with the features that are on, without
    what only builds or tests use, without procedural macros. Raises CalledProcessError."""
    command = [os.environ.get("CARGO", "cargo"), "tree", "--locked", "--package", package]
    command += ["--edges=normal,no-proc-macro", "--prefix=depth", "--format=|{p}|{l}|"]
    done = subprocess.run(command, cwd=repository(), stdout=subprocess.PIPE, text=True, check=True)
    return parse(done.stdout)


def parse(text: str) -> Tree:
    """A tree from cargo's lines, each `DEPTH|NAME vVERSION|LICENCE|`, parents first."""
    uses: dict[Crate, set[Crate]] = defaultdict(set)
    above: list[Crate] = []
    for line in text.splitlines():
        depth, *fields = _LINE.match(line).groups()
        crate = Crate(*fields)
        above[int(depth) :] = [crate]
        uses.setdefault(crate, set())
        if len(above) > 1:
            uses[above[-2]].add(crate)
    return Tree(above[0], {crate: frozenset(below) for crate, below in uses.items()})


def checksums() -> dict[tuple[str, str], str]:
    """SHA-256 of the crates of the registry, by name and version, from Cargo.lock."""
    lock = tomllib.loads((repository() / "Cargo.lock").read_text())
    return {
        (each["name"], each["version"]): each["checksum"]
        for each in lock["package"]
        if "checksum" in each
    }
