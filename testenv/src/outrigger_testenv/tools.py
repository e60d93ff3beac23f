"""Programs that tests need and Python cannot install; scripts/install-test-tools does."""

import os
import shutil
from typing import NoReturn

import pytest

# The place of a Go that was not installed by a package manager, which is not in every PATH.
_GO = "/usr/local/go/bin/go"


def go() -> str | None:
    """The path of Go's command, if it is installed."""
    return shutil.which("go") or shutil.which(_GO)


def needs(*programs: str) -> None:
    """Skips the test if a program is missing. With CI set, it fails instead: CI installs all of
    them.
    """
    missing = [each for each in programs if shutil.which(each) is None]
    if not missing:
        return
    skip(f"not installed: {', '.join(missing)}; see scripts/install-test-tools")


def skip(reason: str) -> NoReturn:
    """Skips the test, because something is not on this machine. With CI set, it fails instead."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
