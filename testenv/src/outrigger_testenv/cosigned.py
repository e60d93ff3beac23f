"""Makes images signed by cosign itself, stored as a layout directory:
`crates/oci/tests/data/cosign`.

`python -m outrigger_testenv.cosigned --v2 PATH --v3 PATH` generates it again, with new keys, by
cosign of both major versions and a registry of its own. It uses no network.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
from pathlib import Path

from outrigger_testenv.images import MANIFEST, push_layers
from outrigger_testenv.processes import free_ports
from outrigger_testenv.registry import Registry

PLACE = Path(__file__).parents[3] / "crates" / "oci" / "tests" / "data" / "cosign"
REPOSITORY = "models/churn"
INDEX = "application/vnd.oci.image.index.v1+json"
# A signing configuration without services: no certificate, time stamp or transparency log.
NO_SERVICES = {"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}


class Cosign:
    """The cosign command, run in a directory with its keys."""

    def __init__(self, binary: Path, directory: Path):
        self._binary = binary.resolve()
        self._directory = directory

    def generate_key_pair(self, name: str) -> Path:
        """Generates NAME.key and NAME.pub; returns the latter."""
        self.run("generate-key-pair", f"--output-key-prefix={name}")
        return self._directory / f"{name}.pub"

    def sign(self, image: str, *options: str, key: str = "cosign") -> None:
        """Signs an image with a key only."""
        self.run("sign", f"--key={key}.key", "--yes", *options, image)

    def run(self, *arguments: str) -> None:
        """Runs cosign, with an empty password for its keys."""
        environment = {**os.environ, "COSIGN_PASSWORD": "", "HOME": str(self._directory)}
        subprocess.run([self._binary, *arguments], cwd=self._directory, env=environment, check=True)


class Layout:
    """A layout directory; manifests are copied to it with everything that they refer to."""

    def __init__(self, directory: Path, registry: Registry):
        self._directory = directory
        self._registry = registry
        self._entries: list[dict] = []
        (directory / "blobs" / "sha256").mkdir(parents=True)
        (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')

    def add(self, tag: str) -> None:
        """Copies the manifest that a tag points to, if the tag exists."""
        try:
            content, kind = self._registry.manifest(REPOSITORY, tag)
        except urllib.error.HTTPError:
            return
        digest = self._registry.digest(REPOSITORY, tag)
        name = {"org.opencontainers.image.ref.name": tag}
        entry = {"mediaType": kind, "digest": digest, "size": len(content), "annotations": name}
        self._entries.append(entry)
        self._manifest(digest, content)
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self._entries}
        (self._directory / "index.json").write_text(json.dumps(index, indent=1) + "\n")

    def _manifest(self, digest: str, content: bytes) -> None:
        self._blob(digest, content)
        manifest = json.loads(content)
        for entry in manifest.get("manifests", []):
            self._manifest(entry["digest"], self._registry.manifest(REPOSITORY, entry["digest"])[0])
        for part in [*manifest.get("layers", []), *filter(None, [manifest.get("config")])]:
            self._blob(part["digest"], self._registry.blob(REPOSITORY, part["digest"]))

    def _blob(self, digest: str, content: bytes) -> None:
        (self._directory / "blobs" / digest.replace(":", "/")).write_bytes(content)


def sign_all(registry: Registry, v2: Cosign, v3: Cosign, offline: Path) -> list[str]:
    """Pushes and signs the images; returns their tags."""
    alone = f"--signing-config={offline}"
    old = ("--new-bundle-format=false", "--use-signing-config=false", "--tlog-upload=false")
    signed = {
        "unsigned": [],
        "v2": [(v2, ["--tlog-upload=false"], "cosign")],
        "v2-annotated": [(v2, ["--tlog-upload=false", "--annotations=stage=live"], "cosign")],
        "v2-bundle": [(v2, ["--new-bundle-format", alone], "cosign")],
        "v3": [(v3, [alone], "cosign")],
        "v3-annotated": [(v3, [alone, "--annotations=stage=live"], "cosign")],
        "v3-tag": [(v3, old, "cosign")],
        "v3-index": [(v3, [alone], "cosign")],
        "v3-stranger": [(v3, [alone], "stranger")],
        "v3-tag-stranger": [(v3, old, "stranger")],
        "v3-twice": [(v3, [alone], "cosign"), (v3, [alone], "stranger")],
        "v3-tag-twice": [(v3, old, "cosign"), (v3, old, "stranger")],
    }
    for tag, signatures in signed.items():
        digest = push_layers(registry, REPOSITORY, tag, [], labels={"tag": tag})
        if tag.endswith("index"):
            digest = push_index(registry, tag, digest)
        for cosign, options, key in signatures:
            image = f"{registry.host}/{REPOSITORY}@{digest}"
            cosign.sign(image, *options, key=key)
    return list(signed)


def push_index(registry: Registry, tag: str, digest: str) -> str:
    """Replaces an image by an index that contains it; returns the index's digest."""
    size = len(registry.manifest(REPOSITORY, digest)[0])
    platform = {"architecture": "amd64", "os": "linux"}
    entry = {"mediaType": MANIFEST, "digest": digest, "size": size, "platform": platform}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
    return registry.put_manifest(REPOSITORY, tag, json.dumps(index).encode(), INDEX)


def make(directory: Path, work: Path, binaries: argparse.Namespace) -> None:
    """Makes the keys, images and signatures, and copies them to the layout."""
    v2, v3 = Cosign(binaries.v2, work), Cosign(binaries.v3, work)
    registry = Registry(work / "registry", free_ports(1)[0], work / "registry.log")
    registry.start()
    try:
        shutil.copy(v2.generate_key_pair("cosign"), directory)
        shutil.copy(v3.generate_key_pair("stranger"), directory)
        offline = work / "offline.json"
        offline.write_text(json.dumps(NO_SERVICES))
        tags = sign_all(registry, v2, v3, offline)
        layout = Layout(directory / "layout", registry)
        for tag in tags:
            layout.add(tag)
            digest = registry.digest(REPOSITORY, tag).replace(":", "-")
            layout.add(digest)
            layout.add(f"{digest}.sig")
    finally:
        registry.stop()


def main() -> None:
    """Replaces the stored layout and keys."""
    parser = argparse.ArgumentParser(description=__doc__)
    for version in ("v2", "v3"):
        parser.add_argument(f"--{version}", type=Path, required=True, help="cosign's binary")
    arguments = parser.parse_args()
    shutil.rmtree(PLACE / "layout", ignore_errors=True)
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        make(PLACE, Path(work), arguments)


if __name__ == "__main__":
    main()
