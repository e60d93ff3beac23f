"""The cache of what the figures need and what takes minutes to make: libraries, models, compiled
programs. It is outside the repository and is kept between runs.
"""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from outrigger_testenv import caches
from outrigger_testenv.bench.figure import Skipped
from outrigger_testenv.trees.generate import install

OLDEST, BEFORE_LAYOUT, NEWEST = "1.5.0", "3.0.5", "3.4.1"
"""Versions of XGBoost: that of XGBoost Serving, the last one that reads trees as they are stored,
and the newest.
"""


def root() -> Path:
    """The directory of the cache."""
    return caches.root() / "trees"


def xgboost(version: str) -> Path:
    """The library of a version, downloaded if it is not there yet. Raises CalledProcessError."""
    return install(version, root() / "libraries")


def made(name: str, make: Callable[[Path], object]) -> Path:
    """The directory of this name. If it is not there yet, `make` writes its files."""
    return caches.made(root() / name, make)


def environment(name: str, requirements: Sequence[str]) -> Path:
    """An environment of Python of its own, made if it is not there yet. Raises Skipped if that
    fails.
    """
    try:
        return caches.environment(root() / name, requirements)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skipped(f"{', '.join(requirements)} cannot be installed: {error}") from error
