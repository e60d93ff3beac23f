"""GetModelStatus: versions, their states, and the errors of loads that failed."""

from outrigger_testenv.conformance import models
from outrigger_testenv.conformance.row import Row, untried
from outrigger_testenv.conformance.scene import BASE, VERSION, Scene


def _pair(scene: Scene, short: str, **choice) -> str:
    """Serves a model with the versions 3 and 4. Returns its states, or those of a choice."""
    for version in (3, 4):
        scene.write(short, version, models.constant(version))
    scene.add(short, versions="all")
    scene.settled(short, "3 AVAILABLE", "4 AVAILABLE")
    return scene.states(short, **choice)


def _loading(scene: Scene) -> str:
    with scene.waiting_load("loading") as end:
        call = scene.begin_add("loading")
        seen = scene.settled("loading", "1 LOADING")
        end()
        call.result()
    return f"{seen}, then {scene.states('loading')}"


def _unloading(scene: Scene) -> str:
    """The states of a model that is removed during a run, and what callers get meanwhile."""
    scene.write("drained", 1, models.waiting)
    scene.add("drained")
    with scene.waiting_run("drained") as end:
        scene.remove("drained")
        during = scene.settled("drained", "1 UNLOADING")
        other = scene.predict("drained", {"x": [0.0]})
        seen = f"{during}; {other}; {end()}"
    return f"{seen}; {scene.settled('drained', '1 END')}"


def _removed(scene: Scene) -> str:
    _pair(scene, "removed")
    scene.remove("removed")
    return scene.settled("removed", "3 END", "4 END")


def _load(name: str, about: str, expected: str, build: models.Build) -> Row:
    """A version that is damaged in some way, and its state after the load."""

    def act(scene: Scene) -> str:
        scene.write(name, 1, build)
        scene.add(name)
        return scene.states(name)

    return Row(f"status-load-{name}", about, f"1 {expected}", act)


def _flipped(content: bytes) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


_VARIABLES = "variables/variables.data-*"
_LOADS = [
    _load(
        "empty",
        "a version without saved_model.pb",
        "END NOT_FOUND: Could not find SavedModel .pb or .pbtxt at supplied export directory "
        "path: *",
        models.empty,
    ),
    _load(
        "zero",
        "a saved_model.pb of no bytes",
        "END NOT_FOUND: Could not find meta graph def matching supplied tags: { serve }*",
        models.damaged("saved_model.pb", lambda content: b""),
    ),
    _load(
        "untagged",
        "a model without the tag serve",
        "END NOT_FOUND: Could not find meta graph def matching supplied tags: { serve }*",
        models.damaged("saved_model.pb", lambda content: content.replace(b"serve", b"train", 1)),
    ),
    _load(
        "truncated",
        "a saved_model.pb that is cut",
        "END OUT_OF_RANGE: *",
        models.damaged("saved_model.pb", lambda content: content[: len(content) // 2]),
    ),
    _load(
        "unknown-operation",
        "a graph with an unknown operation",
        "END NOT_FOUND: *Op type not registered 'AddVX'*",
        models.damaged("saved_model.pb", lambda content: content.replace(b"AddV2", b"AddVX")),
    ),
    _load(
        "short-variables",
        "values of variables that are cut",
        "END OUT_OF_RANGE: *",
        models.damaged(_VARIABLES, lambda content: content[:2]),
    ),
    _load(
        "flipped-variables",
        "values of variables with a changed bit",
        "END DATA_LOSS: *",
        models.damaged(_VARIABLES, _flipped),
    ),
    _load(
        "corrupt-index",
        "an index of variables that is no index",
        "END DATA_LOSS: *",
        models.damaged("variables/variables.index", lambda content: b"?" * len(content)),
    ),
    _load(
        "no-index",
        "a model without the index of its variables is loaded",
        "AVAILABLE",
        models.without("variables/variables.index"),
    ),
    _load(
        "no-variables",
        "a model without its variables is loaded",
        "AVAILABLE",
        models.without("variables"),
    ),
]
_STATES = [
    Row(
        "status-no-spec",
        "no model spec",
        "INVALID_ARGUMENT: Missing ModelSpec",
        lambda scene: scene.status(None),
    ),
    Row(
        "status-unknown-model",
        "a model that was never seen",
        "NOT_FOUND: Could not find any versions of model absent",
        lambda scene: scene.states("absent"),
    ),
    Row(
        "status-unknown-version",
        "a version that was never seen",
        "NOT_FOUND: Could not find version 9 of model base",
        lambda scene: scene.states(BASE, version=9),
    ),
    Row(
        "status-available",
        "a version in a directory whose name has leading zeros",
        f"{VERSION} AVAILABLE",
        lambda scene: scene.states(BASE),
    ),
    Row(
        "status-versions",
        "versions in descending order",
        "4 AVAILABLE, 3 AVAILABLE",
        lambda scene: _pair(scene, "pair-all"),
    ),
    Row(
        "status-version",
        "one version",
        "3 AVAILABLE",
        lambda scene: _pair(scene, "pair-one", version=3),
    ),
    Row(
        "status-label",
        "a label is ignored",
        "4 AVAILABLE, 3 AVAILABLE",
        lambda scene: _pair(scene, "pair-label", version_label="absent"),
    ),
    Row("status-removed", "versions that were unloaded are kept", "4 END, 3 END", _removed),
    Row("status-loading", "a version during its load", "1 LOADING, then 1 AVAILABLE", _loading),
    Row(
        "status-unloading",
        "an unload waits for the runs in progress, and further calls find no model",
        "1 UNLOADING; NOT_FOUND: Servable not found for request: Latest(drained); OK; 1 END",
        _unloading,
    ),
    untried(
        "status-retried",
        "a version is LOADING, without an error, between the attempts to load it",
        "1 LOADING",
        "--max_num_load_retries=1",
    ),
    untried(
        "status-cancelled",
        "a load whose version is removed during its retries",
        "1 END CANCELLED: *",
        "--max_num_load_retries=1",
    ),
]
ROWS = [*_STATES, *_LOADS]
