"""Programs that tests use and Python cannot install: scripts/install-test-tools does."""

import os
import shutil

import pytest


def needs(*programs: str) -> None:
    """Skips the test when a program is missing; where CI is set, which has them all, fails it."""
    missing = [each for each in programs if shutil.which(each) is None]
    if not missing:
        return
    reason = f"not installed: {', '.join(missing)}; see scripts/install-test-tools"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
