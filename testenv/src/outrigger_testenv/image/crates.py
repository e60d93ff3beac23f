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
    # The licence as in Cargo.toml: an SPDX expression, or the older `A/B` for `A OR B`.
    license: str

    @property
    def expression(self) -> str:
        """The licence as an SPDX expression."""
        return re.sub(r"\s*/\s*", " OR ", self.license)


@dataclass(frozen=True)
class Tree:
    """A package and the crates that it is linked from, each with its direct dependencies."""

    root: Crate
    uses: Mapping[Crate, frozenset[Crate]]

    @cached_property
    def crates(self) -> list[Crate]:
        """All crates except the root, sorted."""
        return sorted(self.uses.keys() - {self.root})


def linked(package: str) -> Tree:
    """The crates that cargo links into a package for this machine with the enabled features,
    without build and test dependencies and procedural macros. Raises CalledProcessError.
    """
    return parse(_printed("--package", package, "--edges=normal,no-proc-macro"))


def of_tests_only(package: str) -> set[tuple[str, str]]:
    """Names and versions of the crates that a package has only if it is built with the workspace's
    tests, whose features are then its own too. Raises CalledProcessError.
    """
    own = _printed("--package", package, "--edges=normal,build")
    return _names(_printed("--workspace", "--edges=normal,dev")) - _names(own)


def _names(text: str) -> set[tuple[str, str]]:
    lines = [_LINE.match(line) for line in text.splitlines() if line]
    return {(line[2], line[3]) for line in lines}


def _printed(*arguments: str) -> str:
    """Lines of cargo tree, each `DEPTH|NAME vVERSION|LICENCE|`, parents first."""
    command = [os.environ.get("CARGO", "cargo"), "tree", "--locked", *arguments]
    command += ["--prefix=depth", "--format=|{p}|{l}|"]
    done = subprocess.run(command, cwd=repository(), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def parse(text: str) -> Tree:
    """Parses the lines of cargo tree."""
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
    """The SHA-256 of crates from the registry, by name and version, from Cargo.lock."""
    lock = tomllib.loads((repository() / "Cargo.lock").read_text())
    return {
        (each["name"], each["version"]): each["checksum"]
        for each in lock["package"]
        if "checksum" in each
    }
