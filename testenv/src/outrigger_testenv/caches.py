"""The cache of what takes minutes to make, outside the repository and kept between runs."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path


def root() -> Path:
    """The directory of the cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "outrigger"


def made(directory: Path, make: Callable[[Path], object]) -> Path:
    """The directory. If it is not there yet, `make` writes its files."""
    if not directory.is_dir():
        parent = directory.parent
        parent.mkdir(parents=True, exist_ok=True)
        # A run that ends early leaves no directory that looks complete.
        unfinished = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=parent))
        try:
            make(unfinished)
            unfinished.rename(directory)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return directory


def environment(place: Path, requirements: Sequence[str]) -> Path:
    """An environment of Python of its own, made if it is not there yet with these arguments of
    pip. Raises OSError or CalledProcessError.
    """

    # The place of an environment is written into its files, so it is not renamed as others are.
    def make(complete: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python"]
        subprocess.run([*pip, "install", "--quiet", *requirements], check=True)
        (complete / "requirements").write_text("\n".join(requirements) + "\n")

    made(complete_mark(place), make)
    return place


def complete_mark(place: Path) -> Path:
    """The directory that exists as soon as an environment is complete."""
    return place.with_name(f"{place.name}.complete")


def digest(*files: Path) -> str:
    """The name of the content of files, for a place that is made again when one changes."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def remove_others(place: Path) -> None:
    """Removes the places of earlier digests, whose names differ from this one's in what follows
    the last hyphen.
    """
    name, _, _ = place.name.rpartition("-")
    for other in place.parent.glob(f"{name}-*"):
        if not other.name.startswith(place.name):
            shutil.rmtree(other, ignore_errors=True)
