"""Fixtures: the image, built once, and unpacked by another tool than the one that packed it."""

import tempfile
from pathlib import Path

import pytest

from outrigger_testenv.image import sandbox
from outrigger_testenv.image.build import build
from outrigger_testenv.tools import needs

MOST = 100_000_000


@pytest.fixture(scope="session")
def place():
    """A directory that other users can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="outrigger-image-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture(scope="session")
def layout(place):
    """The layout that the image is built into."""
    return place / "image"


@pytest.fixture(scope="session")
def built(layout):
    """The image, with a binary that is larger than the one that is shipped: it is not optimised."""
    return build(layout, MOST)


@pytest.fixture(scope="session")
def root(built, layout, place):
    """The image's unpacked root filesystem."""
    needs("umoci")
    return sandbox.unpack(layout, built.tag, place / "bundle")


@pytest.fixture(scope="session")
def needs_sandbox():
    """Skips the test where the image cannot be run."""
    needs("bwrap")
    if not sandbox.available():
        pytest.skip("bubblewrap may not make namespaces here")
