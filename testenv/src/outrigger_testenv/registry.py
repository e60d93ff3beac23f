"""A real registry on loopback, and a client for the part of its API that tests need."""

import hashlib
import json
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outrigger_testenv.authority import Certificate
from outrigger_testenv.processes import Process

_MANIFESTS = ", ".join(
    [
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    ]
)


def available() -> bool:
    """Whether docker-registry is installed."""
    return shutil.which("docker-registry") is not None


class Registry:
    """Debian's docker-registry over a directory; its content survives a restart.

    With a certificate it serves HTTPS.
    """

    def __init__(
        self, directory: Path, port: int, log: Path, certificate: Certificate | None = None
    ):
        directory.mkdir(parents=True, exist_ok=True)
        self.host = f"127.0.0.1:{port}"
        config = directory / "config.json"
        self._storage = directory / "blobs"
        self._scheme = "https" if certificate else "http"
        self._trust = (
            ssl.create_default_context(cafile=certificate.authority) if certificate else None
        )
        # JSON is valid YAML.
        config.write_text(json.dumps(_config(self._storage, self.host, certificate)))
        self.process = Process("registry", ["docker-registry", "serve", config], log)

    def start(self) -> None:
        """Starts the registry and waits until it answers."""
        self.process.start()
        self.process.wait_until(self._answers)

    def stop(self) -> None:
        """Ends the registry; its content stays."""
        self.process.kill()

    def reference(self, repository: str, tag: str) -> str:
        """The reference `host:port/repository:tag`."""
        return f"{self.host}/{repository}:{tag}"

    def digest(self, repository: str, tag: str) -> str:
        """The digest that a tag points to."""
        return f"sha256:{hashlib.sha256(self.manifest(repository, tag)[0]).hexdigest()}"

    def manifest(self, repository: str, reference: str) -> tuple[bytes, str]:
        """A manifest's bytes and media type."""
        request = self._request("GET", f"{repository}/manifests/{reference}")
        request.add_header("Accept", _MANIFESTS)
        with self._open(request, 10) as answer:
            return answer.read(), answer.headers["Content-Type"]

    def blob(self, repository: str, digest: str) -> bytes:
        """A blob's bytes."""
        with self._open(self._request("GET", f"{repository}/blobs/{digest}"), 60) as answer:
            return answer.read()

    def tag(self, repository: str, digest: str, tag: str) -> None:
        """Moves a tag to a stored manifest."""
        content, media_type = self.manifest(repository, digest)
        self.put_manifest(repository, tag, content, media_type)

    def tag_many(self, repository: str, digest: str, tags: Iterable[str]) -> None:
        """Points tags to a stored manifest on disk, which is faster than a request for each."""
        repositories = self._storage / "docker" / "registry" / "v2" / "repositories"
        algorithm, encoded = digest.split(":")
        for tag in tags:
            directory = repositories / repository / "_manifests" / "tags" / tag
            for link in ("current", f"index/{algorithm}/{encoded}"):
                (directory / link).mkdir(parents=True)
                (directory / link / "link").write_text(digest)

    def remove_tag(self, repository: str, tag: str) -> None:
        """Removes a tag on disk, since docker-registry's API cannot."""
        repositories = self._storage / "docker" / "registry" / "v2" / "repositories"
        shutil.rmtree(repositories / repository / "_manifests" / "tags" / tag)

    def put_manifest(self, repository: str, reference: str, content: bytes, kind: str) -> str:
        """Stores a manifest; returns its digest."""
        request = self._request("PUT", f"{repository}/manifests/{reference}", content)
        request.add_header("Content-Type", kind)
        with self._open(request, 10) as answer:
            return answer.headers["Docker-Content-Digest"]

    def put_blob(self, repository: str, content: bytes) -> str:
        """Uploads a blob in one piece; returns its digest."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        start = self._request("POST", f"{repository}/blobs/uploads/", b"")
        with self._open(start, 60) as answer:
            location = answer.headers["Location"]
        joint = "&" if "?" in location else "?"
        request = urllib.request.Request(f"{location}{joint}digest={digest}", content, method="PUT")
        request.add_header("Content-Type", "application/octet-stream")
        with self._open(request, 60):
            return digest

    def tamper(self, digest: str, content: bytes) -> None:
        """Replaces a blob's bytes on disk, without the registry's knowledge."""
        algorithm, encoded = digest.split(":")
        blobs = self._storage / "docker" / "registry" / "v2" / "blobs"
        (blobs / algorithm / encoded[:2] / encoded / "data").write_bytes(content)

    def _request(self, method: str, path: str, body: bytes | None = None) -> urllib.request.Request:
        url = f"{self._scheme}://{self.host}/v2/{path}"
        return urllib.request.Request(url, body, method=method)

    def _open(self, request: urllib.request.Request, timeout: float) -> Any:
        return urllib.request.urlopen(request, timeout=timeout, context=self._trust)

    def _answers(self) -> bool:
        try:
            with self._open(self._request("GET", ""), 1) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


def _config(storage: Path, address: str, certificate: Certificate | None) -> dict:
    tls = (
        {"tls": {"certificate": str(certificate.file), "key": str(certificate.key)}}
        if certificate
        else {}
    )
    return {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
        "http": {"addr": address, **tls},
    }
