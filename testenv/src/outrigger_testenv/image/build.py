"""Builds the image from a binary into a layout."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.image import crates, dockerfile, sbom
from outrigger_testenv.image.layout import Image, Layout

# The size limit of a pull, bytes.
MOST = 40_000_000


class TooLarge(RuntimeError):
    """The image exceeds the size limit."""


@dataclass(frozen=True)
class Built:
    """A built image."""

    image: Image
    tag: str
    sbom: bytes


def build(output: Path, most: int = MOST) -> Built:
    """Builds the image of `outrigger()` into the layout `output`, with its SBOM attached. It has at
    most `most` bytes.

    The same binary at the same commit gives the same digest. Raises TooLarge, and
    CalledProcessError.
    """
    tree, created = crates.linked("outrigger-cli"), _created()
    arguments = {"VERSION": tree.root.version, "REVISION": _git("rev-parse", "HEAD") or "unknown"}
    config = dockerfile.configuration(repository() / "Dockerfile", arguments, created.isoformat())
    with tempfile.TemporaryDirectory(prefix="outrigger-image-") as place:
        root, onnxruntime = Path(place) / "rootfs", Path(place) / "onnxruntime"
        scripts = repository() / "deploy" / "image"
        environment = {**os.environ, "PYTHON": sys.executable}
        subprocess.run([scripts / "onnxruntime", onnxruntime], check=True, env=environment)
        subprocess.run([scripts / "rootfs", outrigger(), root, onnxruntime], check=True)
        document = sbom.document(root, tree, created)
        layout = Layout(output)
        image = layout.image(root, config, tree.root.version)
    layout.attach(image, sbom.MEDIA_TYPE, document, f"{tree.root.version}-sbom")
    layout.close()
    if image.size > most:
        raise TooLarge(f"{image.size / 1e6:.1f} MB compressed; {most / 1e6:.0f} MB are the limit")
    return Built(image, tree.root.version, document)


def _created() -> datetime:
    """The time of creation: SOURCE_DATE_EPOCH, or else the commit's time, or else the epoch."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or "0"
    return datetime.fromtimestamp(int(epoch), UTC)


def _git(*arguments: str) -> str:
    """The output of git; empty outside of a checkout."""
    command = ["git", "-C", str(repository()), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
