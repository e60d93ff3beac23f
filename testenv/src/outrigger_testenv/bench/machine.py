"""The machine and the versions of a measurement."""

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
    """The machine, its operating system and the versions on it."""
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "engine": os.environ.get(ENGINE_ENV, "outrigger engine"),
        "versions": {
            "outrigger": _output([str(outrigger()), "--version"]),
            "rustc": _output(["rustc", "--version"]),
            "tensorflow-cpu": metadata.version("tensorflow-cpu"),
            "python": platform.python_version(),
        },
    }


def cpu_model(cpuinfo: str) -> str:
    """The first processor's name in /proc/cpuinfo, or else the architecture: some architectures
    give no name.
    """
    fields = (line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line)
    names = (value.strip() for key, value in fields if key.strip() == "model name")
    return next(names, platform.machine())


def commit() -> dict[str, Any]:
    """The commit (`None` outside of a checkout), and whether files differ from it."""
    changes = _output(["git", "status", "--porcelain", "--untracked-files=no"])
    return {"id": _output(["git", "rev-parse", "HEAD"]) or None, "modified": bool(changes)}


def load_average() -> float:
    """The average number of runnable threads over the last minute."""
    return round(os.getloadavg()[0], 2)


def _output(command: Sequence[str]) -> str:
    """The output of a command; empty if it fails."""
    done = subprocess.run(command, cwd=repository(), capture_output=True, text=True, check=False)
    return done.stdout.strip()
