"""The tests in a repository that run: what a document may name to show that a promise is kept."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:async )?(?:fn|def) (\w+)")
_RUST_TEST = re.compile(r"#\[(?:\w+::)*test\b")
# Attributes and marks without a condition.
_NOT_RUN = re.compile(r"#\[ignore|@pytest\.mark\.(?:skip|xfail)\b")
_ROOTS = ("lib.rs", "main.rs")


def running(file: Path) -> set[str]:
    """The names of the tests in a file that run: a file of Rust has to be part of its crate."""
    if file.suffix == ".py":
        tests = _marked(file.read_text())
        return {name for name, marks in tests if name.startswith("test_") and _runs(marks)}
    if not is_compiled(file):
        return set()
    tests = _marked(file.read_text())
    return {name for name, marks in tests if _RUST_TEST.search(marks) and _runs(marks)}


def shows_something(path: Path) -> bool:
    """Whether a file or directory has a test that runs, a target of a fuzzer, or data that tests
    of its directory read.
    """
    if path.is_dir():
        return any(map(shows_something, path.rglob("*.*")))
    if path.suffix not in (".rs", ".py"):
        return path.is_file()
    below = path.with_suffix("")
    return (
        bool(running(path))
        or "fuzz_target!(" in path.read_text()
        or (below.is_dir() and any(map(running, below.rglob("*.rs"))))
    )


@cache
def is_compiled(file: Path) -> bool:
    """Whether a file of Rust is a root of its crate, or a module of a file that is compiled."""
    directory, name = file.parent, file.stem
    is_target = file.name in _ROOTS or directory.name in ("tests", "benches")
    is_root = is_target and (directory.parent / "Cargo.toml").exists()
    is_main = directory.parent.name == "tests" and file.name == "main.rs"
    if is_root or is_main or directory.name == "fuzz_targets":
        return True
    parents = [directory / root for root in _ROOTS] + [directory.with_suffix(".rs")]
    declared = re.compile(rf"^\s*(?:pub(?:\([^)]*\))? )?mod {name};", re.MULTILINE)
    return any(
        parent != file
        and parent.exists()
        and declared.search(parent.read_text())
        and is_compiled(parent)
        for parent in parents
    )


def _runs(marks: str) -> bool:
    return not _NOT_RUN.search(marks)


def _marked(text: str) -> Iterator[tuple[str, str]]:
    """The functions of a file, each with the attributes or decorators before it."""
    marks, is_open = "", False
    for line in text.splitlines():
        start = line.strip()
        if is_open or start.startswith(("#[", "@")):
            marks += line
            is_open = marks.count("(") != marks.count(")") or marks.count("[") != marks.count("]")
        elif found := _FUNCTION.match(line):
            yield found[1], marks
            marks = ""
        elif not start.startswith(("//", "#")):
            marks = ""
