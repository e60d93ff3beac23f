"""The version before the redesign for many engines, built from its commit."""

import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

from outrigger_testenv.binary import repository

COMMIT = "bf15645b47f35caa3d3fab0781e2fd4a99ab2d0d"

# scripts/build-commit: history or cargo is missing.
_UNAVAILABLE = 69


class NotBuildable(RuntimeError):
    """This checkout or this machine cannot build the previous version; the message says why."""


@dataclass(frozen=True)
class Previous:
    """A directory that scripts/build-commit has made."""

    directory: Path

    @property
    def binary(self) -> Path:
        """The binary, of a build for tests."""
        return self.directory / "outrigger"

    @property
    def chart(self) -> Path:
        """The Helm chart of the same commit."""
        return self.directory / "source" / "deploy" / "helm" / "outrigger"


@functools.cache
def previous() -> Previous:
    """Builds the previous version, or finds it built. Raises NotBuildable."""
    command = [repository() / "scripts" / "build-commit", COMMIT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == _UNAVAILABLE:
        raise NotBuildable(done.stderr.strip())
    if done.returncode != 0:
        raise RuntimeError(
            f"scripts/build-commit failed ({done.returncode}): {done.stderr[-4000:]}"
        )
    return Previous(Path(done.stdout.strip()))


if __name__ == "__main__":
    print(COMMIT)
