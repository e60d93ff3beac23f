"""Reads the image's configuration from a Dockerfile's last stage."""

import io
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dockerfile_parse import DockerfileParser

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def configuration(
    dockerfile: Path, arguments: Mapping[str, str], created: str | None
) -> dict[str, Any]:
    """The image's configuration, without its layers.

    `arguments` are values of the Dockerfile's ARGs; `created` is a time of RFC 3339. Raises
    ValueError for an instruction that changes the root filesystem in another way than by copying
    it.
    """
    parser = DockerfileParser(
        fileobj=io.BytesIO(dockerfile.read_bytes()), build_args=dict(arguments)
    )
    stage: dict[str, str] = {}
    for each in parser.structure:
        if each["instruction"] == "FROM":
            stage = {}
        stage[each["instruction"]] = each["value"]
    if stage["FROM"] != "scratch" or stage["COPY"] != "--from=build /rootfs /":
        raise ValueError("the last stage must be the build's root filesystem, and nothing else")
    if stage.keys() & {"RUN", "ADD", "WORKDIR", "VOLUME"}:
        raise ValueError("the last stage changes the root filesystem")
    config = {
        "User": stage["USER"],
        "ExposedPorts": {f"{port}/tcp": {} for port in stage["EXPOSE"].split()},
        "Env": [f"{name}={value}" for name, value in parser.envs.items()],
        "Entrypoint": json.loads(stage["ENTRYPOINT"]),
        "Cmd": json.loads(stage["CMD"]),
        "WorkingDir": "/",
        "Labels": dict(parser.labels),
    }
    machine = platform.machine()
    return {
        **({"created": created} if created else {}),
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": config,
    }
