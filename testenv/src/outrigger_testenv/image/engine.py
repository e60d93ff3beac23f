"""Builds the Dockerfile with buildah, without a daemon and without a registry.

The base image that the Dockerfile names would have to be pulled. It is replaced by a base with this
machine's own programs, whose `cargo` is a script that supplies a binary built before, provided that
it is called with the revision and a profile. Python and pip are installed here.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from outrigger_testenv.binary import outrigger, repository

_BASE = """\
FROM scratch
COPY . /
ENV PATH=/stand-in:/usr/bin:/bin
"""
_CARGO = """\
#!/bin/sh -eu
[ "$*" = "build --profile dist --package outrigger-cli --locked" ]
[ -s "${{RUSTFLAGS#*-Cprofile-use=}}" ]
[ "$OUTRIGGER_REVISION" = "{revision}" ]
install -D /binary target/dist/outrigger
"""
_APT_GET = "#!/bin/sh\n"
# The directories that Debian has merged into /usr.
_MERGED = ("bin", "sbin", "lib", "lib64")
_AUTHORITIES = Path("etc/ssl/certs/ca-certificates.crt")


def available() -> bool:
    """Whether buildah has the rights that its isolation needs."""
    return os.geteuid() == 0


def build(directory: Path, arguments: Mapping[str, str], layout: Path, tag: str) -> None:
    """Builds the Dockerfile with values for its ARGs, and writes the image to a layout.

    `directory` is a new directory for buildah; REVISION must be among the ARGs. Raises
    CalledProcessError.
    """
    _build(directory, "base", _base(directory / "base", arguments["REVISION"]))
    given = {**arguments, "RUST": "localhost/base"}
    mounts = {Path("/usr"): "/usr", outrigger(): "/binary"}
    _build(
        directory,
        "outrigger",
        repository(),
        *(f"--build-arg={name}={value}" for name, value in given.items()),
        *(f"--volume={here}:{there}:ro" for here, there in mounts.items()),
    )
    _buildah(directory, "push", "--quiet", "localhost/outrigger", f"oci:{layout}:{tag}")


def _base(root: Path, revision: str) -> Path:
    """The build context of the base image: the files that are not mounted into it."""
    for name in _MERGED:
        (root / "usr").mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    (root / _AUTHORITIES).parent.mkdir(parents=True)
    shutil.copy(Path("/") / _AUTHORITIES, root / _AUTHORITIES)
    (root / "stand-in").mkdir()
    for name, script in {"cargo": _CARGO.format(revision=revision), "apt-get": _APT_GET}.items():
        (root / "stand-in" / name).write_text(script)
        (root / "stand-in" / name).chmod(0o755)
    (root / "binary").touch()
    (root / "tmp").mkdir()
    (root / "Dockerfile").write_text(_BASE)
    return root


def _build(directory: Path, name: str, context: Path, *further: str) -> None:
    isolated = ("--isolation=chroot", f"--tag=localhost/{name}")
    _buildah(directory, "build", *isolated, *further, str(context))


def _buildah(directory: Path, *arguments: str) -> None:
    storage = (f"--root={directory / 'storage'}", f"--runroot={directory / 'run'}")
    command = ["buildah", *storage, "--storage-driver=vfs", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr)
        done.check_returncode()
