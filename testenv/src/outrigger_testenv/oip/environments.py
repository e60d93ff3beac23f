"""Environments of Python of other servers and clients of the protocol.

Each has pinned versions of its own, since their requirements conflict, and is kept in the cache
outside the repository. A changed file of requirements makes a new environment.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from outrigger_testenv import caches

TRITON, MLSERVER, KSERVE, TRITONCLIENT = NAMES = ("triton", "mlserver", "kserve", "tritonclient")
RAY, SCRIPT = MEASURED = ("ray", "script")
"""Further environments, which only figures need: Ray Data, and Triton's client with pyarrow."""

_REQUIREMENTS = Path(__file__).parent / "requirements"


class Missing(RuntimeError):
    """An environment is not there and cannot be made; the message says why."""


def environment(name: str) -> Path:
    """The directory of an environment, made if it is not there yet. Raises Missing."""
    place, requirements = _place(name), _requirements(name)
    if caches.complete_mark(place).is_dir():
        return place
    try:
        # The files name all dependencies but those that are not used: libraries for GPUs.
        made = caches.environment(place, ["--no-deps", "--requirement", str(requirements)])
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(place, ignore_errors=True)
        raise Missing(f"{requirements.name} cannot be installed: {error}") from error
    _remove_older(place)
    return made


def python(name: str) -> Path:
    """The interpreter of an environment. Raises Missing."""
    return environment(name) / "bin" / "python"


def installed(name: str) -> Path:
    """The interpreter of an environment that is in the cache. Raises Missing if it is not."""
    if not caches.complete_mark(_place(name)).is_dir():
        raise Missing(f"{name} is not installed; `make oip-peers` does it")
    return python(name)


def needs(*names: str) -> None:
    """Skips the test if an environment cannot be had. With CI set, it fails instead."""
    for name in names:
        try:
            environment(name)
        except Missing as missing:
            if os.environ.get("CI"):
                pytest.fail(str(missing), pytrace=False)
            pytest.skip(str(missing))


def _requirements(name: str) -> Path:
    return _REQUIREMENTS / f"{name}.txt"


def _place(name: str) -> Path:
    return caches.root() / "oip" / f"{name}-{caches.digest(_requirements(name))}"


def _remove_older(place: Path) -> None:
    """Removes the environments of earlier requirements."""
    name, _, _ = place.name.rpartition("-")
    for other in place.parent.glob(f"{name}-*"):
        if not other.name.startswith(place.name):
            shutil.rmtree(other, ignore_errors=True)
