"""Which versions an engine finds on disk, loads and unloads."""

import shutil

from outrigger_testenv.conformance import models
from outrigger_testenv.conformance.row import Row, untried
from outrigger_testenv.conformance.scene import STILL, Scene

_ANY = {"x": [0.0]}


def _serve(scene: Scene, short: str, found: list[int | str], **settings) -> None:
    """Adds a model whose versions on disk score their number, and waits until one is served."""
    for version in found:
        scene.write(short, version, models.constant(int(version)))
    scene.add(short, **settings)


def _policy(name: str, about: str, expected: str, found: list[int | str], **settings) -> Row:
    """A model with these versions on disk, and those that its policy selects."""

    def act(scene: Scene) -> str:
        _serve(scene, name, found, **settings)
        scene.base_path(name).joinpath("notes").mkdir()
        return scene.settled(name, *expected.split(", "))

    return Row(f"versions-{name}", about, expected, act)


def _discovered(scene: Scene) -> str:
    """A new version replaces the one that is served, and is served itself."""
    _serve(scene, "discovered", [1])
    scene.write("discovered", 2, models.constant(2))
    states = scene.settled("discovered", "2 AVAILABLE", "1 END")
    return f"{states}; {scene.predict('discovered', _ANY)}"


def _overlap(scene: Scene) -> str:
    """The states while the new version is loaded."""
    _serve(scene, "overlap", [1])
    with scene.waiting_load("overlap", 2) as end:
        during = scene.settled("overlap", "2 LOADING")
        end()
        return f"{during}; {scene.settled('overlap', '2 AVAILABLE', '1 END')}"


def _failed(scene: Scene) -> str:
    """A new version that fails, that is repaired, and that a further one follows."""
    _serve(scene, "failed", [1])
    broken = scene.write("failed", 2, models.empty)
    failed = scene.settled("failed", "2 END")
    models.constant(2)(broken)
    # The repaired files would be found by the poll that finds version 3.
    scene.add("failed", versions=2)
    scene.write("failed", 3, models.constant(3))
    followed = scene.settled("failed", "3 AVAILABLE", "1 END")
    return f"{_plain(failed)}; {_plain(followed)}"


def _plain(states: str) -> str:
    """States without the messages of errors."""
    return ", ".join(" ".join(each.split()[:3]).rstrip(":") for each in states.split(", "))


def _renamed(scene: Scene) -> str:
    _serve(scene, "renamed", [1, 2])
    path = scene.base_path("renamed")
    path.joinpath("2").rename(path / "2.denied")
    return scene.settled("renamed", "1 AVAILABLE", "2 END")


def _emptied(scene: Scene) -> str:
    _serve(scene, "emptied", [1])
    shutil.rmtree(scene.base_path("emptied") / "1")
    return scene.settled("emptied", "1 END")


def _replaced(scene: Scene) -> str:
    """Other files under the same version number."""
    _serve(scene, "replaced", [1])
    scene.write("replacing", 1, models.constant(5))
    scene.add("replaced", base_path=str(scene.base_path("replacing")))
    scene.write("replaced-probe", 1, models.constant(1))
    # A model that is added is found by a poll, which is later than the change.
    scene.add("replaced-probe")
    return scene.predict("replaced", _ANY)


def _moved(scene: Scene) -> str:
    """Another base path, with another version."""
    _serve(scene, "moved", [1])
    scene.write("elsewhere", 2, models.constant(2))
    scene.add("moved", base_path=str(scene.base_path("elsewhere")))
    return scene.settled("moved", "2 AVAILABLE", "1 END")


def _rolled(scene: Scene) -> str:
    """The versions 0 and 1, then 1 and 2: version 1 answers all the time."""
    _serve(scene, "rolled", [0, 1, 2], versions=[0, 1])
    scene.settled("rolled", "0 AVAILABLE", "1 AVAILABLE")
    scene.add("rolled", versions=[1, 2])
    failures = []

    def is_over() -> bool:
        seen = scene.predict(scene.spec("rolled", version=1), _ANY)
        failures.extend([seen] if "y=[1.0]" not in seen else [])
        states = scene.states("rolled")
        return "2 AVAILABLE" in states and "0 END" in states

    scene.wait_for(is_over, "the versions do not change", 10 * STILL)
    return f"{scene.states('rolled')}; {len(failures)} failures"


ROWS = [
    _policy("default", "the highest version, by default", "2 AVAILABLE", [1, 2]),
    _policy("latest", "the highest versions", "3 AVAILABLE, 2 AVAILABLE", [1, 2, 3], versions=2),
    _policy("latest-none", "no version at all means one", "2 AVAILABLE", [1, 2], versions=0),
    _policy("all", "all versions", "2 AVAILABLE, 1 AVAILABLE", [1, 2], versions="all"),
    _policy(
        "specific", "a version with leading zeros", "17 AVAILABLE", ["00017", 18], versions=[17]
    ),
    _policy(
        "duplicate",
        "a number that two directories have",
        "1 AVAILABLE",
        ["1", "01"],
        versions="all",
    ),
    Row(
        "versions-discovered",
        "a version that appears later replaces the one before",
        "2 AVAILABLE, 1 END; y=[2.0] by discovered 2 serving_default",
        _discovered,
    ),
    Row(
        "versions-overlap",
        "the version before stays until the new one is available",
        "2 LOADING, 1 AVAILABLE; 2 AVAILABLE, 1 END",
        _overlap,
    ),
    Row(
        "versions-failed",
        "the version before stays if the new one fails, which is not tried again",
        "2 END NOT_FOUND, 1 AVAILABLE; 3 AVAILABLE, 2 END NOT_FOUND, 1 END",
        _failed,
    ),
    Row(
        "versions-renamed",
        "a version whose directory is renamed is dropped",
        "2 END, 1 AVAILABLE",
        _renamed,
    ),
    Row("versions-emptied", "the only version is removed from disk", "1 END", _emptied),
    Row(
        "versions-replaced",
        "another base path with the same version number loads nothing",
        "y=[1.0] by replaced 1 serving_default",
        _replaced,
    ),
    Row(
        "versions-moved",
        "another base path with another version number is a new version",
        "2 AVAILABLE, 1 END",
        _moved,
    ),
    Row(
        "versions-rolled",
        "a version that stays in the policy answers all the time",
        "2 AVAILABLE, 1 AVAILABLE, 0 END; 0 failures",
        _rolled,
    ),
    untried(
        "versions-not-polled",
        "a version that appears later is not found",
        "1 AVAILABLE",
        "--file_system_poll_wait_seconds=0",
    ),
    untried(
        "versions-one-at-a-time",
        "a load waits until the one before it has ended",
        "1 START",
        "--num_load_threads=0",
    ),
]
