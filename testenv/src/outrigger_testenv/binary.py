"""Paths of this repository and its binaries."""

import os
from pathlib import Path


def repository() -> Path:
    """The root of the repository that this package is installed from."""
    return Path(__file__).resolve().parents[3]


def outrigger() -> Path:
    """The path of the binary: OUTRIGGER_BIN, or else the release build."""
    path = Path(
        os.environ.get("OUTRIGGER_BIN") or repository() / "target" / "release" / "outrigger"
    )
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: `make build`, or set OUTRIGGER_BIN")
    return path
