"""buildah, given the Dockerfile, builds the same image as `make image` does without a builder."""

import hashlib
import json
import subprocess

import pytest

from outrigger_testenv.image import engine, sandbox
from outrigger_testenv.tools import needs

REVISION = "0123abcd"


@pytest.fixture(scope="module")
def bundle(place):
    """The root filesystem and the configuration of the image that buildah builds."""
    needs("buildah", "umoci", "skopeo")
    if not engine.available():
        pytest.skip("needs root")
    layout = place / "built"
    engine.build(place / "buildah", {"REVISION": REVISION}, layout, "test")
    return sandbox.unpack(layout, "test", place / "built-bundle"), configuration(layout, "test")


def configuration(layout, tag):
    """The runtime configuration of an image in a layout."""
    shown = ["skopeo", "inspect", "--config", f"oci:{layout}:{tag}"]
    done = subprocess.run(shown, capture_output=True, check=True)
    return json.loads(done.stdout)["config"]


def files(root):
    """The entries below a directory, with kind and mode, and the digests of files."""
    return {
        path.relative_to(root).as_posix(): (
            path.lstat().st_mode,
            path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in root.rglob("*")
    }


def test_it_has_the_same_files(bundle, root):
    assert files(bundle[0]) == files(root)


def test_it_runs_in_the_same_way(bundle, built, layout):
    ours, theirs = configuration(layout, built.tag), bundle[1]
    labels = theirs.pop("Labels")
    assert labels.pop("org.opencontainers.image.revision") == REVISION
    ours["Labels"].pop("org.opencontainers.image.revision")
    assert ours.pop("Labels").items() <= labels.items()
    assert {"WorkingDir": "/", **theirs} == ours


@pytest.mark.usefixtures("needs_sandbox")
def test_it_starts(bundle):
    command = sandbox.command(bundle[0], "--version")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "outrigger"), done.stderr
