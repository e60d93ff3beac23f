"""Layout directories of OCI with named pipes, devices and links in the place of files."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from outrigger_testenv import variants


def _largest(layout: Path) -> Path:
    return max((layout / "blobs" / "sha256").iterdir(), key=lambda each: each.stat().st_size)


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _link(file: Path, target: Path) -> None:
    if file.is_dir():
        shutil.move(file, target)
    else:
        file.unlink()
    file.symlink_to(target)


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe-as-index": lambda layout: _pipe(layout / "index.json"),
    "pipe-as-layer": lambda layout: _pipe(_largest(layout)),
    "device-as-index": lambda layout: _link(layout / "index.json", Path("/dev/zero")),
    "device-as-layer": lambda layout: _link(_largest(layout), Path("/dev/zero")),
    "link-as-layer": lambda layout: _link(_largest(layout), Path("/etc/hostname")),
    "link-as-blobs": lambda layout: _link(layout / "blobs", layout.with_suffix(".blobs")),
}


def make(directory: Path, number: int) -> None:
    """Makes a layout of each kind for a turn: KIND-NUMBER."""
    # A score of its own makes a layer that the store does not have already.
    first = 100 + number * len(KINDS)
    scores = range(first, first + len(KINDS))
    packages = variants.versions(directory / f"packages-{number}", scores)
    for (name, spoil), package in zip(KINDS.items(), packages, strict=True):
        layout = directory / f"{name}-{number}"
        package.push(f"oci:{layout}:latest")
        spoil(layout)
