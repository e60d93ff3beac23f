"""The previous version, built once."""

import os

import pytest

from outrigger_testenv.upgrade.previous import NotBuildable, previous


@pytest.fixture(scope="session")
def before():
    """The previous version; skips where it cannot be built, and fails there where CI is set."""
    try:
        return previous()
    except NotBuildable as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
