"""Polled directories of versions, with pipes, devices, links and growing files in the place of a
version: it is refused with its reason, and the version before it serves.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import TURNS, Case, Turn
from outrigger_testenv.attack.neighbour import Report
from outrigger_testenv.attack.scene import Scene
from outrigger_testenv.processes import ProcessError
from outrigger_testenv.stack import Stack

GRAPH = "tensorflow_serving_model/model/saved_model.pb"
# The number of the good version. It is the latest one only where all others come before it.
_GOOD, _LAST = 1, 1_000_000
_POLL = "200ms"
_REFUSED = 20.0
# Versions of one model, more than a policy can select.
_MANY = 10_000

# Makes the files of a version hostile.
Spoil = Callable[[Path], None]


def _replaced(make: Callable[[Path], None]) -> Spoil:
    def spoil(version: Path) -> None:
        (version / GRAPH).unlink()
        make(version / GRAPH)

    return spoil


def _linked(target: str) -> Spoil:
    return _replaced(lambda file: file.symlink_to(target))


def _version_elsewhere(version: Path) -> None:
    shutil.rmtree(version)
    version.symlink_to("/etc")


def _linked_directory(version: Path) -> None:
    ((version / GRAPH).parent / "more").symlink_to("../..")


# The reason that a version of each kind is refused for, as `models why` has it.
KINDS: dict[str, tuple[Spoil, str]] = {
    "pipe": (_replaced(os.mkfifo), "neither a file nor a directory"),
    "device": (_linked("/dev/zero"), "leads out of the directory"),
    "link": (_linked("/etc/hostname"), "leads out of the directory"),
    "link-as-version": (_version_elsewhere, "leads out of the directory"),
    "link-as-directory": (_linked_directory, "leads to a directory"),
}
GROWING, MANY = "growing", "many"


def models(directory: Path, good: Path) -> list[dict[str, Any]]:
    """The configuration of a model for each kind and turn, whose directory has a good version."""
    names = [_name(kind, number) for kind in [*KINDS, GROWING, MANY] for number in range(TURNS)]
    for name in names:
        number = _LAST if name.startswith(MANY) else _GOOD
        shutil.copytree(good, directory / name / str(number))
    return [{"name": f"polled/{name}", "directory": str(directory / name)} for name in names]


def _name(kind: str, number: int) -> str:
    return f"{kind}-{number}"


def polling(scene: Scene) -> Stack:
    """The stack that polls the directories."""
    return scene.other(_start)


def _start(scene: Scene) -> Stack:
    listed = models(scene.directory / "versions", scene.package.directory)
    polls = {"directory_poll_interval": _POLL}
    return scene.further("grpc", "health", "admin", models=listed, images=polls)


def _prepare(scene: Scene, number: int) -> None:
    """Writes versions of each kind, which the stack finds when it polls next."""
    polling(scene)
    versions, good = scene.directory / "versions", scene.package.directory
    for kind, (spoil, _) in KINDS.items():
        unfinished = versions / f"unfinished-{kind}"
        shutil.copytree(good, unfinished)
        spoil(unfinished)
        unfinished.rename(versions / _name(kind, number) / "2")
    for each in range(_MANY):
        version = versions / _name(MANY, number) / str(2 + each)
        version.mkdir()
        os.mkfifo(version / "saved_model.pb")


def _attack(scene: Scene, turn: Turn) -> str:
    stack, number = polling(scene), turn.number
    with _growing(scene.directory / "versions" / _name(GROWING, number) / "2"):
        for kind, (_, problem) in KINDS.items():
            _expect_why(stack, _name(kind, number), problem)
        turn.wait()
        for kind in [*KINDS, GROWING, MANY]:
            if error := scene.load(f"polled/{_name(kind, number)}", stack=stack):
                raise Broken(f"{kind}: the version before it does not serve: {error}")
    return "refused"


def _expect_why(stack: Stack, name: str, problem: str) -> None:
    shown = ""

    def is_refused() -> bool:
        nonlocal shown
        shown = stack.serve.run("models", "why", f"polled/{name}").stdout
        return problem in shown

    try:
        stack.serve.process.wait_until(is_refused, _REFUSED)
    except ProcessError as error:
        raise Broken(f"{name} is not refused with {problem!r}: {shown[-200:]}") from error


@contextmanager
def _growing(version: Path) -> Iterator[None]:
    """A version whose file grows while it is read."""
    version.mkdir()
    over = threading.Event()

    def grow() -> None:
        with (version / "saved_model.pb").open("ab", buffering=0) as file:
            while not over.wait(0.01):
                file.write(bytes(64 << 10))

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def _neighbour(scene: Scene, turn: Turn) -> Report:
    return scene.neighbour(turn, polling(scene))


CASES = [
    Case(
        "directories",
        "pipes, devices, links, growing files and 10,000 versions in polled directories",
        _attack,
        prepare=_prepare,
        stack=polling,
        neighbour=_neighbour,
    )
]
