"""What was measured, and on what."""

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.stack import ENGINE_ENV


def machine() -> dict[str, Any]:
    """The machine, its system and the versions on it."""
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "engine": os.environ.get(ENGINE_ENV, "outrigger engine"),
        "versions": {
            "outrigger": _said([str(outrigger()), "--version"]),
            "rustc": _said(["rustc", "--version"]),
            "tensorflow-cpu": metadata.version("tensorflow-cpu"),
            "python": platform.python_version(),
        },
    }


def cpu_model(cpuinfo: str) -> str:
    """The first processor's name in /proc/cpuinfo; not every architecture tells one."""
    fields = (line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line)
    names = (value.strip() for key, value in fields if key.strip() == "model name")
    return next(names, platform.machine())


def commit() -> dict[str, Any]:
    """The commit, none outside of a checkout, and whether files have been changed since."""
    changes = _said(["git", "status", "--porcelain", "--untracked-files=no"])
    return {"id": _said(["git", "rev-parse", "HEAD"]) or None, "modified": bool(changes)}


def load_average() -> float:
    """How many threads wanted to run, on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def _said(command: Sequence[str]) -> str:
    """What a command prints; nothing when it fails."""
    done = subprocess.run(command, cwd=repository(), capture_output=True, text=True, check=False)
    return done.stdout.strip()
