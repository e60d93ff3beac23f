"""The program of testenv/kubernetes: built once for each content of its files, and kept in the
cache outside the repository.
"""

import os
import re
import subprocess
from pathlib import Path

from outrigger_testenv import caches, tools
from outrigger_testenv.binary import repository
from outrigger_testenv.pinned import Missing

__all__ = ["Missing", "built", "installed", "needs", "version"]

_SOURCE = repository() / "testenv" / "kubernetes"
_NAME = "kubernetes"
# Kubernetes' own packages report this version; without it charts that name one are refused.
_VERSIONS = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def built() -> Path:
    """The program, built if it is not there yet, which takes minutes. Raises Missing."""
    place = _place()
    try:
        caches.made(place, _build)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{_SOURCE.relative_to(repository())} cannot be built: {error}") from error
    caches.remove_others(place)
    return place / _NAME


def installed() -> Path:
    """The program that is in the cache. Raises Missing if it is not."""
    program = _place() / _NAME
    if not program.is_file():
        raise Missing("the API server is not built; `make kube-apiserver` does it")
    return program


def needs() -> None:
    """Skips the test if the program is not in the cache. With CI set, it fails instead."""
    try:
        installed()
    except Missing as missing:
        tools.skip(str(missing))


def version() -> str:
    """The version of Kubernetes."""
    required = (_SOURCE / "go.mod").read_text()
    return re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", required, re.MULTILINE)[1]


def _place() -> Path:
    files = (_SOURCE / name for name in ("go.mod", "go.sum", "main.go"))
    return caches.root() / _NAME / f"{_NAME}-{caches.digest(*files)}"


def _build(directory: Path) -> None:
    go = tools.go()
    if go is None:
        raise FileNotFoundError("Go is not installed")
    stamps = (f"-X {package}.gitVersion={version()}" for package in _VERSIONS)
    command = [
        *(go, "build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false"),
        f"-ldflags=-s -w {' '.join(stamps)}",
        *("-o", directory / _NAME, "."),
    ]
    # A Go that is older than go.mod demands fetches the one that suffices, as a module. Garbage is
    # collected seldom, which takes less CPU.
    settings = {"GOTOOLCHAIN": "auto", "GOWORK": "off", "CGO_ENABLED": "0", "GOGC": "400"}
    subprocess.run(command, cwd=_SOURCE, env={**os.environ, **settings}, check=True)
