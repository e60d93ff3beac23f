"""Builds images directly, for packages that `outrigger push` would refuse."""

import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from outrigger_testenv.registry import Registry

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
COMPRESSED = f"{LAYER}+gzip"
_BLOCK = 512


def files_of(directory: Path, below: str = "data") -> dict[str, bytes]:
    """The files of a package directory, by path in the image."""
    return {
        f"{below}/{path.relative_to(directory).as_posix()}": path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def tar(files: Mapping[str, bytes], extra: Iterable[tarfile.TarInfo] = ()) -> bytes:
    """A layer with the files, and with the extra entries without content (links, devices)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for entry in extra:
            archive.addfile(entry)
    return out.getvalue()


def compressed_tar(files: Mapping[str, tuple[int, Iterable[bytes]]]) -> bytes:
    """A layer in gzip whose files, of a size and pieces each, never are in memory as a whole."""
    # 31 is the largest window, with gzip's header and trailer.
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    out = []
    for name, (size, pieces) in files.items():
        entry = tarfile.TarInfo(name)
        entry.size = size
        out.append(packer.compress(entry.tobuf(tarfile.GNU_FORMAT)))
        out += [packer.compress(piece) for piece in pieces]
        out.append(packer.compress(bytes(-size % _BLOCK)))
    out += [packer.compress(bytes(2 * _BLOCK)), packer.flush()]
    return b"".join(out)


def push_layers(
    registry: Registry,
    repository: str,
    tag: str,
    layers: Sequence[bytes],
    *,
    labels: Mapping[str, str] | None = None,
    kind: str = LAYER,
) -> str:
    """Pushes layers of one media type as an image; returns its digest."""
    descriptors = [_descriptor(registry, repository, layer, kind) for layer in layers]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Labels": dict(labels or {})},
        "rootfs": {"type": "layers", "diff_ids": [each["digest"] for each in descriptors]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _descriptor(registry, repository, json.dumps(config).encode(), CONFIG),
        "layers": descriptors,
    }
    return registry.put_manifest(repository, tag, json.dumps(manifest).encode(), MANIFEST)


def push_files(registry: Registry, repository: str, tag: str, files: Mapping[str, bytes]) -> str:
    """Pushes files as an image of one layer; returns its digest."""
    return push_layers(registry, repository, tag, [tar(files)])


def _descriptor(registry: Registry, repository: str, content: bytes, kind: str) -> dict:
    digest = registry.put_blob(repository, content)
    return {"mediaType": kind, "digest": digest, "size": len(content)}
