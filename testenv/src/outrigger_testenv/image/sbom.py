"""The image's software bill of materials, in CycloneDX."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from outrigger_testenv.image.crates import Crate, Tree, checksums

MEDIA_TYPE = "application/vnd.cyclonedx+json"
BINARY = "usr/local/bin/outrigger"
_AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"


def document(root: Path, tree: Tree, created: datetime) -> bytes:
    """The document: the binary with its digest, the crates it is linked from, and the files beside
    it.

    `root` is the image's root filesystem. The same content gives the same document.
    """
    binary = root / BINARY
    program = Component(
        name="outrigger",
        type=ComponentType.APPLICATION,
        version=tree.root.version,
        bom_ref="outrigger",
        hashes=[_sha256(binary)],
        licenses=[LicenseFactory().make_from_string(tree.root.expression)],
    )
    known = checksums()
    parts = {crate: _crate(crate, known) for crate in tree.crates} | {tree.root: program}
    files = list(_files(root))
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, str(_sha256(binary).content)),
        metadata=BomMetaData(component=program, timestamp=created),
        components=[*(parts[crate] for crate in tree.crates), *files],
    )
    for crate, uses in tree.uses.items():
        bom.register_dependency(parts[crate], [parts[each] for each in uses])
    bom.register_dependency(program, files)
    return JsonV1Dot6(bom).output_as_string(indent=1).encode()


def _crate(crate: Crate, known: dict[tuple[str, str], str]) -> Component:
    checksum = known.get((crate.name, crate.version))
    purl = PackageURL("cargo", name=crate.name, version=crate.version)
    return Component(
        name=crate.name,
        version=crate.version,
        bom_ref=str(purl),
        # Only crates from a registry have a package URL.
        purl=purl if checksum else None,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
        licenses=[LicenseFactory().make_from_string(crate.expression)],
    )


def _files(root: Path) -> Iterator[Component]:
    """Shared libraries and the certificate authorities, with their system packages."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and (".so" in path.name or name == _AUTHORITIES):
            purl = _onnxruntime(path.name) or _debian(
                "ca-certificates" if name == _AUTHORITIES else _owner(f"/{name}")
            )
            yield Component(
                name=f"/{name}",
                type=ComponentType.FILE,
                bom_ref=f"/{name}",
                version=purl.version if purl else None,
                purl=purl,
                hashes=[_sha256(path)],
            )


def _onnxruntime(name: str) -> PackageURL | None:
    """The package of ONNX Runtime, if the file called `name` is its library."""
    stem, _, version = name.partition(".so.")
    if stem != "libonnxruntime":
        return None
    return PackageURL("pypi", name="onnxruntime", version=version)


def _owner(file: str) -> str:
    """The Debian package that a file belongs to; empty on other systems."""
    return _output("dpkg-query", "--search", file).partition(": ")[0].partition(",")[0]


def _debian(package: str) -> PackageURL | None:
    version = _output("dpkg-query", "--show", "--showformat=${Version}", package) if package else ""
    name, _, architecture = package.partition(":")
    qualifiers = {"arch": architecture} if architecture else None
    return PackageURL("deb", "debian", name, version, qualifiers) if version else None


def _output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _sha256(file: Path) -> HashType:
    content = hashlib.sha256(file.read_bytes()).hexdigest()
    return HashType(alg=HashAlgorithm.SHA_256, content=content)
