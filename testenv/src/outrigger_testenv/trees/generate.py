"""Writes the fixtures of crates/trees: models of several versions of XGBoost, and their results.

    python -m outrigger_testenv.trees.generate crates/trees/tests/fixtures

A wheel of each version is downloaded to a directory (`--wheels`); only its library is used.
"""

import argparse
import subprocess
import sys
import zipfile
from pathlib import Path

from outrigger_testenv.trees.worker import OTHER_SUMS, SPARSE

VERSIONS = ["0.90", "1.0.2", "1.3.3", "1.5.0", "1.7.6", "2.1.4", "3.0.5", "3.2.0", "3.4.1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("--wheels", type=Path, default=Path("target/xgboost"))
    parser.add_argument("--version", action="append", choices=VERSIONS)
    arguments = parser.parse_args()
    for version in arguments.version or VERSIONS:
        library = install(version, arguments.wheels)
        directory = arguments.fixtures / version
        directory.mkdir(parents=True, exist_ok=True)
        # Each in a process of its own: two versions of the library do not fit into one.
        worker = [sys.executable, "-m", "outrigger_testenv.trees.worker"]
        subprocess.run([*worker, str(library), version, str(directory)], check=True)
        if version in OTHER_SUMS:
            library = install(SPARSE, arguments.wheels)
            rescore = [sys.executable, "-m", "outrigger_testenv.trees.rescore"]
            subprocess.run([*rescore, str(library), str(directory)], check=True)


def install(version: str, wheels: Path) -> Path:
    """The library of a version, downloaded if it is not there yet."""
    directory = wheels / version
    library = directory / "xgboost" / "lib" / "libxgboost.so"
    if not library.exists():
        wheel = download(version, wheels)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory, [n for n in archive.namelist() if ".so" in n])
        wheel.unlink()
    return library


def download(version: str, wheels: Path) -> Path:
    # The small package without code for GPUs exists since 2.1.
    package = "xgboost" if version.startswith(("0.", "1.")) else "xgboost-cpu"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", "3.12", "--dest", str(wheels)]
    subprocess.run([*command, f"{package}=={version}"], check=True)
    (wheel,) = wheels.glob(f"{package.replace('-', '_')}-{version}-*.whl")
    return wheel


if __name__ == "__main__":
    main()
