"""The root filesystem of a container that runs as a process of this machine."""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# Paths of this machine in every container: shells and libraries, certificate authorities as in an
# image, and the kernel's file systems.
_SHARED = ("/usr", "/etc/ssl", "/dev", "/proc", "/sys")
_LINKS = ("bin", "lib", "lib64", "sbin")
# A script that bind-mounts a source to a target for each pair of arguments up to `--`, or mounts
# the processes of its namespace where the source is `proc`, and then executes the rest.
_BIND = (
    'while [ "$1" != -- ]; do if [ "$1" = proc ]; then mount -t proc proc "$2"; '
    'else mount --rbind "$1" "$2"; fi || exit 125; shift 2; done; shift; exec "$@"'
)


class Root:
    """A directory that becomes `/`, with files and directories of this machine mounted in it.

    Only root can write to it, except where `mounts` are writable; these map absolute paths to
    sources.
    """

    def __init__(self, directory: Path, mounts: Mapping[str, Path]):
        self._directory = directory
        self._mounts = {**{path: Path(path) for path in _SHARED}, **mounts}
        directory.mkdir(parents=True)
        directory.chmod(0o755)
        for name in _LINKS:
            (directory / name).symlink_to(Path("usr") / name)
        for path, source in self._mounts.items():
            target = self._target(path)
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch()

    def enter(self, alone: bool = False) -> list[str]:
        """The command prefix that enters this root. `alone`: the command is process 1 of a
        namespace of its own, and a child of the prefix's process; otherwise it is that process.
        """
        unshared = ["unshare", "--mount", "--propagation", "private"]
        mounts = dict(self._mounts)
        if alone:
            unshared += ["--pid", "--fork", "--kill-child"]
            mounts["/proc"] = Path("proc")
        pairs = [(str(source), str(self._target(path))) for path, source in mounts.items()]
        bound = [part for pair in pairs for part in pair]
        return [*unshared, "sh", "-c", _BIND, "sh", *bound, "--", "chroot", str(self._directory)]

    def _target(self, path: str) -> Path:
        return self._directory / path.lstrip("/")


def brought(
    directory: Path, mounts: Mapping[str, Path], needed: Sequence[str], alone: bool = False
) -> tuple[list[str], dict[str, str]]:
    """The command prefix that enters a new root with these mounts and the `needed` files, and the
    paths of these files within it. Both are empty where nothing can be mounted. `alone` is that of
    `Root.enter`.
    """
    if not may_mount():
        return [], {}
    # A directory where no volume is mounted.
    places = {path: f"/opt/{at}" for at, path in enumerate(needed) if path.startswith("/")}
    files = {place: Path(path) for path, place in places.items()}
    return Root(directory, {**files, **mounts}).enter(alone), places


@functools.cache
def may_mount() -> bool:
    """Whether processes can be given another root filesystem and a namespace of their own, which
    needs root's rights.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    with tempfile.TemporaryDirectory() as directory:
        command = [*Root(Path(directory) / "root", {}).enter(alone=True), "true"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
