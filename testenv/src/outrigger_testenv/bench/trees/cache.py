"""The cache of what the figures need and what takes minutes to make: libraries, models, compiled
programs. It is outside the repository and is kept between runs.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from outrigger_testenv.bench.figure import Skipped
from outrigger_testenv.trees.generate import install

OLDEST, BEFORE_LAYOUT, NEWEST = "1.5.0", "3.0.5", "3.4.1"
"""Versions of XGBoost: that of XGBoost Serving, the last one that reads trees as they are stored,
and the newest.
"""


def root() -> Path:
    """The directory of the cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "outrigger" / "trees"


def xgboost(version: str) -> Path:
    """The library of a version, downloaded if it is not there yet. Raises CalledProcessError."""
    return install(version, root() / "libraries")


def made(name: str, make: Callable[[Path], object]) -> Path:
    """The directory of this name. If it is not there yet, `make` writes its files."""
    directory = root() / name
    if not directory.is_dir():
        root().mkdir(parents=True, exist_ok=True)
        # A run that ends early leaves no directory that looks complete.
        unfinished = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root()))
        try:
            make(unfinished)
            unfinished.rename(directory)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return directory


def environment(name: str, requirements: Sequence[str]) -> Path:
    """An environment of Python of its own, made if it is not there yet. Raises Skipped if that
    fails.
    """
    # The place of an environment is written into its files, so it is not renamed as others are.
    place = root() / name

    def make(complete: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        install = [place / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, *requirements], check=True)
        (complete / "requirements").write_text("\n".join(requirements) + "\n")

    try:
        made(f"{name}.complete", make)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skipped(f"{', '.join(requirements)} cannot be installed: {error}") from error
    return place
