"""The image, built once, and unpacked by another tool than the one that packed it."""

import tempfile
from pathlib import Path

import pytest

from outrigger_testenv.image import sandbox
from outrigger_testenv.image.build import build
from outrigger_testenv.tools import needs


@pytest.fixture(scope="session")
def place():
    """A directory that other users may enter, which pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="outrigger-image-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture(scope="session")
def layout(place):
    """Where the image is built to."""
    return place / "image"


@pytest.fixture(scope="session")
def built(layout):
    """The image."""
    return build(layout)


@pytest.fixture(scope="session")
def root(built, layout, place):
    """Its root filesystem."""
    needs("umoci")
    return sandbox.unpack(layout, built.tag, place / "bundle")


@pytest.fixture(scope="session")
def needs_sandbox():
    """Skips where the image cannot be run."""
    needs("bwrap")
    if not sandbox.available():
        pytest.skip("bubblewrap may not make namespaces here")
