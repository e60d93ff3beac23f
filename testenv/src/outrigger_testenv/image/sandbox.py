"""Runs the program of an unpacked image, as a container would, with bubblewrap."""

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outrigger_testenv.chart.user import ARBITRARY_USER


def unpack(layout: Path, tag: str, bundle: Path) -> Path:
    """Unpacks an image with umoci; returns its root filesystem. Raises CalledProcessError.

    The result is accessible to every user who can access the parent of `bundle`.
    """
    image = f"{layout}:{tag}"
    command = ["umoci", "unpack", "--rootless", "--image", image, bundle]
    subprocess.run(command, check=True, capture_output=True)
    bundle.chmod(0o755)
    return bundle / "rootfs"


@functools.cache
def available() -> bool:
    """Whether bubblewrap is installed and can create namespaces here."""
    if shutil.which("bwrap") is None:
        return False
    done = subprocess.run([*_arbitrary_user(), "bwrap", "--ro-bind", "/", "/", "true"], check=False)
    return done.returncode == 0


def command(root: Path, *arguments: str | Path, mounts: Sequence[Path] = ()) -> list[str]:
    """A command line that runs the image with `arguments`.

    The root filesystem is read-only. The process has an arbitrary user, the image's environment,
    the host's network, and the directories `mounts` at their own paths below /tmp.
    """
    variables = (each.partition("=") for each in _process(root)["env"])
    given = [part for name, _, value in variables for part in ("--setenv", name, value)]
    shared = [str(part) for each in mounts for part in ("--bind", each, each)]
    return [
        *_arbitrary_user(),
        *("bwrap", "--unshare-user", "--unshare-ipc", "--unshare-uts", "--die-with-parent"),
        *("--cap-drop", "ALL", "--clearenv", *given, "--chdir", "/"),
        *("--ro-bind", str(root), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
        *shared,
        _process(root)["args"][0],
        *map(str, arguments),
    ]


def default_arguments(root: Path) -> list[str]:
    """The default arguments of the image's program."""
    return _process(root)["args"][1:]


def _process(root: Path) -> dict[str, Any]:
    """The process settings for a container runtime, as umoci reads them from the image."""
    return json.loads((root.parent / "config.json").read_text())["process"]


def _arbitrary_user() -> list[str]:
    """The command prefix for an arbitrary user in root's group, as on OpenShift; empty if we are
    not root.
    """
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={ARBITRARY_USER}", "--regid=0", "--clear-groups", "--"]
