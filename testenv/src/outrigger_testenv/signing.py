"""Signs images as cosign does with a key pair, implemented from its specification."""

import base64
import hashlib
import json
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from outrigger_testenv.images import CONFIG, MANIFEST
from outrigger_testenv.registry import Registry

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
EMPTY = "application/vnd.oci.empty.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
IN_TOTO = "application/vnd.in-toto+json"


class Signer:
    """A key pair over P-256, with the public key in the file `public`."""

    def __init__(self, public: Path):
        public.parent.mkdir(parents=True, exist_ok=True)
        self.public = public
        self._key = ec.generate_private_key(ec.SECP256R1())
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        public.write_bytes(self._key.public_key().public_bytes(serialization.Encoding.PEM, form))

    def sign(self, registry: Registry, repository: str, digest: str) -> None:
        """Signs an image under the tag `sha256-HEX.sig`, as `cosign sign --key` does."""
        claims = {
            "critical": {
                "identity": {"docker-reference": f"{registry.host}/{repository}"},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        }
        payload = json.dumps(claims).encode()
        layer = _descriptor(registry, repository, payload, PAYLOAD)
        layer["annotations"] = {SIGNATURE: self._signature(payload)}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(registry, repository, b"{}", CONFIG),
            "layers": [layer],
        }
        content = json.dumps(manifest).encode()
        registry.put_manifest(repository, f"{digest.replace(':', '-')}.sig", content, MANIFEST)

    def attach(self, registry: Registry, repository: str, digest: str) -> None:
        """Signs an image by an attached Sigstore bundle, as newer cosign does."""
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": digest.removeprefix("sha256:")}}],
            "predicateType": "https://sigstore.dev/cosign/sign/v1",
            "predicate": {},
        }
        payload = json.dumps(statement).encode()
        encoded = f"DSSEv1 {len(IN_TOTO)} {IN_TOTO} {len(payload)} ".encode() + payload
        bundle = {
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": ""}},
            "dsseEnvelope": {
                "payload": base64.b64encode(payload).decode(),
                "payloadType": IN_TOTO,
                "signatures": [{"sig": self._signature(encoded)}],
            },
        }
        image, kind = registry.manifest(repository, digest)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": BUNDLE,
            "config": _descriptor(registry, repository, b"{}", EMPTY),
            "layers": [_descriptor(registry, repository, json.dumps(bundle).encode(), BUNDLE)],
            "subject": {"mediaType": kind, "digest": digest, "size": len(image)},
        }
        content = json.dumps(manifest).encode()
        own = f"sha256:{hashlib.sha256(content).hexdigest()}"
        registry.put_manifest(repository, own, content, MANIFEST)
        entry = {"mediaType": MANIFEST, "digest": own, "size": len(content), "artifactType": BUNDLE}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
        tag = digest.replace(":", "-")
        registry.put_manifest(repository, tag, json.dumps(index).encode(), INDEX)

    def _signature(self, message: bytes) -> str:
        return base64.b64encode(self._key.sign(message, ec.ECDSA(hashes.SHA256()))).decode()


def _descriptor(registry: Registry, repository: str, content: bytes, kind: str) -> dict:
    digest = registry.put_blob(repository, content)
    return {"mediaType": kind, "digest": digest, "size": len(content)}
