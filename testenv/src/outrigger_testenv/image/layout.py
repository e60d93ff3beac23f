"""An OCI image layout directory, written so that equal content has equal digests."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
EMPTY = "application/vnd.oci.empty.v1+json"
REF_NAME = "org.opencontainers.image.ref.name"

Descriptor = dict[str, Any]


@dataclass(frozen=True)
class Image:
    """An image in a layout."""

    descriptor: Descriptor
    # The size of all content that a pull transfers, bytes.
    size: int

    @property
    def digest(self) -> str:
        """The digest of the manifest."""
        return self.descriptor["digest"]


class Layout:
    """A new layout in `directory`, which is replaced. `close` writes its index."""

    def __init__(self, directory: Path):
        self.directory = directory
        self._index: list[Descriptor] = []
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "blobs" / "sha256").mkdir(parents=True)
        (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')

    def image(self, root: Path, config: Mapping[str, Any], tag: str) -> Image:
        """Adds an image of one layer with the files below `root`. `config` is the image's
        configuration without the layer's digest.
        """
        archive = _archive(root)
        layer = self._blob(LAYER, gzip.compress(archive, compresslevel=6, mtime=0))
        diff = {"type": "layers", "diff_ids": [_digest(archive)]}
        described = self._blob(CONFIG, _json({**config, "rootfs": diff}))
        manifest = self._manifest(described, [layer])
        self._index.append({**manifest, "annotations": {REF_NAME: tag}})
        return Image(manifest, manifest["size"] + described["size"] + layer["size"])

    def attach(self, image: Image, kind: str, content: bytes, tag: str) -> str:
        """Attaches a document of a media type as a referrer of the image; returns its digest.

        A registry with the referrers API lists it under the image; in others it is found by its
        tag.
        """
        further = {"artifactType": kind, "subject": image.descriptor}
        document = self._manifest(self._blob(EMPTY, b"{}"), [self._blob(kind, content)], further)
        self._index.append({**document, "artifactType": kind, "annotations": {REF_NAME: tag}})
        return document["digest"]

    def close(self) -> None:
        """Writes the index."""
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self._index}
        (self.directory / "index.json").write_bytes(_json(index))

    def _manifest(
        self,
        config: Descriptor,
        layers: Sequence[Descriptor],
        further: Mapping[str, Any] | None = None,
    ) -> Descriptor:
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
        return self._blob(MANIFEST, _json({**manifest, **(further or {})}))

    def _blob(self, kind: str, content: bytes) -> Descriptor:
        digest = _digest(content)
        self.directory.joinpath("blobs", *digest.split(":")).write_bytes(content)
        return {"mediaType": kind, "digest": digest, "size": len(content)}


def _archive(root: Path) -> bytes:
    """A tar archive of the files below a directory, sorted, with their modes; owner and times are
    fixed.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            entry = archive.gettarinfo(path, path.relative_to(root).as_posix())
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            if entry.isfile():
                with path.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)
    return out.getvalue()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
