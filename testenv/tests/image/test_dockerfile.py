"""Checks of the Dockerfile's text."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from outrigger_testenv.binary import repository
from outrigger_testenv.image import dockerfile

DOCKERFILE = repository() / "Dockerfile"
HEAD = "FROM rust AS build\nFROM scratch\nCOPY --from=build /rootfs /\n"
REST = 'ENV PATH=/bin\nUSER 1\nEXPOSE 1\nLABEL a=b\nENTRYPOINT ["a"]\nCMD ["b"]\n'


def test_the_linter_finds_nothing():
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_base_is_pinned_by_digest_or_empty():
    text = DOCKERFILE.read_text()
    given = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    resolved = [given.get(each.strip("${}"), each) for each in bases]
    assert resolved[-1] == "scratch"
    assert all(re.search(r":[\d.]+\S*@sha256:[0-9a-f]{64}$", each) for each in resolved[:-1])


def test_the_base_has_a_rust_that_the_workspace_builds_with():
    pinned = re.search(r"rust:(\d+)\.(\d+)", DOCKERFILE.read_text())
    needed = re.search(r'rust-version = "(\d+)\.(\d+)"', (repository() / "Cargo.toml").read_text())
    assert tuple(map(int, pinned.groups())) >= tuple(map(int, needed.groups()))


def test_the_version_is_the_workspaces():
    version = re.search(r'^version = "(.+)"', (repository() / "Cargo.toml").read_text(), re.M)[1]
    config = dockerfile.configuration(DOCKERFILE, {}, None)
    assert config["config"]["Labels"]["org.opencontainers.image.version"] == version


def test_the_context_has_every_crate_and_the_build_files_of_the_image():
    lines = (repository() / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    context = {each.removeprefix("!") for each in lines if each.startswith("!")}
    command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version=1"]
    printed = subprocess.run(command, cwd=repository(), capture_output=True, check=True).stdout
    for package in json.loads(printed)["packages"]:
        manifest = package["manifest_path"].removeprefix(f"{repository()}/")
        assert manifest.split("/")[0] in context
    assert {"Cargo.toml", "Cargo.lock", "LICENSE", "proto", "deploy/image"} <= context
    assert all((repository() / each).exists() for each in context)


@pytest.mark.parametrize("instruction", ["RUN true", "WORKDIR /x", "VOLUME /x", "ADD a b"])
def test_a_last_stage_that_does_more_is_refused(tmp_path, instruction):
    file = tmp_path / "Dockerfile"
    file.write_text(f"{HEAD}{REST}")
    assert dockerfile.configuration(file, {}, None)["config"]["User"] == "1"
    file.write_text(f"{HEAD}{instruction}\n{REST}")
    with pytest.raises(ValueError, match="changes the root filesystem"):
        dockerfile.configuration(file, {}, None)


def test_a_last_stage_on_another_base_is_refused(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text(f"{HEAD.replace('scratch', 'debian')}{REST}")
    with pytest.raises(ValueError, match="nothing else"):
        dockerfile.configuration(file, {}, None)
