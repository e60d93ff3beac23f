"""Writes the fixtures of crates/trees whose results are f64: models of LightGBM and CatBoost.

    python -m outrigger_testenv.trees.doubles crates/trees/tests/doubles

A wheel of each version is downloaded to a directory (`--wheels`).
"""

import argparse
import os
import subprocess
import sys
import zipfile
from pathlib import Path

LIGHTGBM = ["2.3.1", "3.3.5", "4.7.0"]
CATBOOST = "1.2.10"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("--wheels", type=Path, default=Path("target/wheels"))
    parser.add_argument("--library", choices=["lightgbm", "catboost"])
    arguments = parser.parse_args()
    if arguments.library != "catboost":
        for version in LIGHTGBM:
            lightgbm(version, arguments.fixtures / f"lightgbm-{version}", arguments.wheels)
    if arguments.library != "lightgbm":
        catboost(arguments.fixtures / f"catboost-{CATBOOST}", arguments.wheels)


def lightgbm(version: str, directory: Path, wheels: Path) -> None:
    """Writes the fixtures of one version, by its library alone."""
    unpacked = install("lightgbm", version, wheels)
    (library,) = unpacked.glob("**/lib_lightgbm.so")
    directory.mkdir(parents=True, exist_ok=True)
    # Each in a process of its own: two versions of the library do not fit into one.
    worker = [sys.executable, "-m", "outrigger_testenv.trees.lightgbm_worker"]
    subprocess.run([*worker, str(library), version, str(directory)], check=True)


def catboost(directory: Path, wheels: Path) -> None:
    """Writes the fixtures of CatBoost, whose wheel fits one version of Python."""
    unpacked = install("catboost", CATBOOST, wheels)
    paths = [str(unpacked), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    worker = [sys.executable, "-m", "outrigger_testenv.trees.catboost_worker"]
    subprocess.run([*worker, str(directory)], check=True, env=environment)


def install(package: str, version: str, wheels: Path) -> Path:
    """The unpacked wheel of a version, downloaded if it is not there yet."""
    directory = wheels / f"{package}-{version}"
    if not directory.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", str(wheels)]
        subprocess.run([*command, f"{package}=={version}"], check=True)
        (wheel,) = wheels.glob(f"{package}-{version}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory)
        wheel.unlink()
    return directory


if __name__ == "__main__":
    main()
