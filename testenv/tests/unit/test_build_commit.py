"""scripts/build-commit: an earlier commit's binary, built once and beside the working tree's."""

import os
import shutil
import stat
import subprocess

import pytest

from outrigger_testenv.binary import repository

SCRIPT = repository() / "scripts" / "build-commit"
# Writes a binary whose content is the commit's own file, and fails where it must not run.
CARGO = """#!/bin/sh
[ ! -e "$FAKE_CARGO_MUST_NOT_RUN" ] || exit 1
built=debug/outrigger
case "$*" in *--release*) built=release/outrigger ;; esac
[ "$1" = build ] || built=release/deps/transcode-0123
mkdir -p "$CARGO_TARGET_DIR/debug" "$CARGO_TARGET_DIR/release/deps"
for last; do :; done
cp "$(dirname "$last")/main" "$CARGO_TARGET_DIR/$built"
chmod +x "$CARGO_TARGET_DIR/$built"
"""
# The commit's script that builds the shipped binary.
SHIP = """#!/bin/sh
mkdir -p "$CARGO_TARGET_DIR/dist"
echo "shipped: $(cat "$(dirname "$0")/../../main") $*" > "$CARGO_TARGET_DIR/dist/outrigger"
chmod +x "$CARGO_TARGET_DIR/dist/outrigger"
"""


@pytest.fixture
def checkout(tmp_path):
    """A repository of two commits, whose working tree has been built."""
    root = tmp_path / "checkout"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPT, root / "scripts")
    git(root, "init", "--quiet")
    (root / "deploy" / "image").mkdir(parents=True)
    (root / "deploy" / "image" / "build").write_text(SHIP)
    (root / "deploy" / "image" / "build").chmod(0o755)
    for content in ("old", "new"):
        (root / "main").write_text(content)
        git(root, "add", ".")
        git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", content)
    for profile in ("debug", "release"):
        for part in ("deps", "build", ".fingerprint"):
            (root / "target" / profile / part).mkdir(parents=True)
    (root / "target" / "debug" / "outrigger").write_text("new")
    return root


@pytest.fixture
def build(checkout, tmp_path):
    """Runs the script in the checkout, with a cargo and a cache of its own."""
    cargo = tmp_path / "cargo"
    cargo.write_text(CARGO)
    cargo.chmod(cargo.stat().st_mode | stat.S_IXUSR)

    def run(*arguments, **variables):
        own = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
        own |= {"CARGO": str(cargo), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        own |= {"FAKE_CARGO_MUST_NOT_RUN": "/nothing"}
        command = [checkout / "scripts" / "build-commit", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env={**own, **variables}
        )

    return run


def git(root, *arguments):
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_is_built_once_and_the_working_trees_binary_stays(build, checkout, tmp_path):
    commit = git(checkout, "rev-parse", "HEAD~1")
    first = build(commit)
    assert first.returncode == 0, first.stderr
    again = build(commit, FAKE_CARGO_MUST_NOT_RUN=str(checkout))
    assert again.stdout == first.stdout
    directory = tmp_path / "cache" / "outrigger" / "commits" / commit
    assert first.stdout.strip() == str(directory)
    assert (directory / "outrigger").read_text() == "old"
    assert (directory / "source" / "main").read_text() == "old"
    assert (checkout / "target" / "debug" / "outrigger").read_text() == "new"
    assert list((checkout / "target" / "commits").iterdir()) == []


def test_a_commit_is_built_as_it_is_shipped_by_its_own_script(build, checkout, tmp_path):
    commit = git(checkout, "rev-parse", "HEAD~1")
    assert build(commit).returncode == 0
    done = build("--shipped", commit)
    assert done.returncode == 0, done.stderr
    directory = tmp_path / "cache" / "outrigger" / "commits" / f"{commit}-shipped"
    assert done.stdout.strip() == str(directory)
    assert (directory / "outrigger").read_text() == "shipped: old --locked\n"
    assert (directory / "transcode").read_text() == "old"
    assert build("--shipped", commit, FAKE_CARGO_MUST_NOT_RUN=str(checkout)).returncode == 0


def test_a_release_build_is_beside_the_build_for_tests(build, checkout, tmp_path):
    commit = git(checkout, "rev-parse", "HEAD~1")
    done = build("--release", commit)
    assert done.returncode == 0, done.stderr
    directory = tmp_path / "cache" / "outrigger" / "commits" / f"{commit}-release"
    assert done.stdout.strip() == str(directory)
    assert (directory / "outrigger").read_text() == "old"
    assert not (directory.parent / commit).exists()


def test_the_working_trees_crates_are_not_taken_for_those_of_the_commit(build, checkout, tmp_path):
    compiled = checkout / "target" / "debug" / "deps" / "libcore.rlib"
    compiled.touch()
    commit = git(checkout, "rev-parse", "HEAD")
    assert build(commit).returncode == 0
    # Cargo compiles files that are newer than its output.
    file = tmp_path / "cache" / "outrigger" / "commits" / commit / "source" / "main"
    assert file.stat().st_mtime > compiled.stat().st_mtime


def test_a_commit_that_is_not_in_the_history_cannot_be_built(build):
    done = build("0123456789" * 4)
    assert (done.returncode, done.stdout) == (69, "")
    assert "git fetch --unshallow" in done.stderr


def test_without_cargo_it_cannot_be_built(build, checkout):
    done = build(git(checkout, "rev-parse", "HEAD"), CARGO="no-such-cargo")
    assert (done.returncode, done.stdout) == (69, "")
    assert "cargo is not installed" in done.stderr


def test_a_build_that_fails_leaves_nothing_to_be_found(build, checkout, tmp_path):
    commit = git(checkout, "rev-parse", "HEAD")
    failed = build(commit, FAKE_CARGO_MUST_NOT_RUN=str(checkout))
    assert failed.returncode not in (0, 69)
    assert build(commit).returncode == 0
