"""Downloads an image and discards it: the baseline of packages."""

import json
import time
import urllib.request
from contextlib import suppress

from outrigger_testenv.images import MANIFEST

_PIECE = 1 << 20


def download(host: str, repository: str, seconds: float) -> int:
    """Downloads the manifest and layers of a repository once; returns the bytes."""
    del seconds
    url = f"http://{host}/v2/{repository}"
    request = urllib.request.Request(f"{url}/manifests/latest", headers={"Accept": MANIFEST})
    with urllib.request.urlopen(request) as answer:
        manifest = json.load(answer)
    return sum(_discard(f"{url}/blobs/{layer['digest']}") for layer in manifest["layers"])


def _discard(url: str) -> int:
    size = 0
    with urllib.request.urlopen(url) as answer:
        while piece := answer.read(_PIECE):
            size += len(piece)
    return size


def fetch(url: str, seconds: float, at_most: int = 1 << 20) -> int:
    """Downloads the first bytes of what a registry sends, within a time; returns their number."""
    size, until = 0, time.monotonic() + seconds
    with suppress(OSError), urllib.request.urlopen(url, timeout=seconds) as answer:
        while size < at_most and time.monotonic() < until and (piece := answer.read1(at_most)):
            size += len(piece)
    return size
