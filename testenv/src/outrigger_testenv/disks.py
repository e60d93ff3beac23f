"""A store on a disk of its own that is full."""

import errno
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outrigger_testenv.stack import Stack

_PAGE = 4096


class NoMounts(Exception):
    """This process may not mount a file system."""


@contextmanager
def full(stack: Stack, size: int = _PAGE) -> Iterator[Path]:
    """Ends the stack's processes other than its registry, and moves its store to a file system
    that is full of files of `size` bytes, which are in the directory that it yields. With 0 bytes,
    none of its inodes is left. The processes that use it end with the body. Raises NoMounts.
    """
    _end(stack)
    store = stack.directory / "store"
    kept = store.rename(stack.directory / "kept")
    store.mkdir()
    entries = [kept, *kept.rglob("*")]
    room = sum(2 * _PAGE + entry.lstat().st_size for entry in entries) + (1 << 20)
    options = f"size={room},nr_inodes={len(entries) + 100}"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", store]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        raise NoMounts
    try:
        shutil.copytree(kept, store, symlinks=True, dirs_exist_ok=True)
        filler = store / "filler"
        filler.mkdir()
        _fill(filler, bytes(size))
        yield filler
        _end(stack)
    finally:
        subprocess.run(["umount", "--lazy", store], check=True)


def _end(stack: Stack) -> None:
    stack.serve.process.stop()
    stack.engine.process.kill()


def _fill(directory: Path, content: bytes) -> None:
    number = 0
    try:
        while True:
            (directory / str(number)).write_bytes(content)
            number += 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
