"""A certificate authority for tests, made with openssl."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
_DAYS = ("-days", "2")


def available() -> bool:
    """Whether openssl is installed."""
    return shutil.which("openssl") is not None


@dataclass(frozen=True)
class Certificate:
    """A server's certificate and its key, PEM files, and the authority to trust for it."""

    file: Path
    key: Path
    authority: Path


def certificate(directory: Path, address: str, *names: str) -> Certificate:
    """Makes a certificate for an IP address and host names, by an authority of its own.

    The certificate also serves as a client certificate. Raises CalledProcessError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    authority, authority_key = directory / "ca.pem", directory / "ca.key"
    _request(authority, authority_key, "basicConstraints=critical,CA:TRUE")
    made = Certificate(directory / "server.pem", directory / "server.key", authority)
    issuer = ("-CA", authority, "-CAkey", authority_key)
    subject = ",".join([f"IP:{address}", *(f"DNS:{name}" for name in names)])
    _request(made.file, made.key, f"subjectAltName={subject}", *issuer)
    return made


def _request(file: Path, key: Path, extension: str, *further: str | Path) -> None:
    command = ["openssl", "req", "-x509", "-subj", f"/CN={file.stem}", *_NEW_KEY, *_DAYS]
    command += ["-addext", extension, "-out", file, "-keyout", key, *further]
    if "-CA" in further:
        # Without it, openssl would make the certificate an authority too.
        command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(command, check=True, capture_output=True)
