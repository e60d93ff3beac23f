"""Labels of versions, which HandleReloadConfigRequest sets and Predict uses."""

from outrigger_testenv.conformance import models
from outrigger_testenv.conformance.row import Row, untried
from outrigger_testenv.conformance.scene import Scene

_REFUSED = (
    "FAILED_PRECONDITION: Request to assign label to version {} of model {}, which is not "
    "currently available for inference"
)
_ALLOWED = "--allow_version_labels_for_unavailable_models"
_LABELS = {"stable": 1, "next": 2}


def _serve(scene: Scene, short: str) -> None:
    """Serves the versions 1 and 2 of a model, with a label each."""
    for version in (1, 2):
        scene.write(short, version, models.constant(version))
    scene.add(short, versions=[1, 2])
    scene.settled(short, "1 AVAILABLE", "2 AVAILABLE")
    scene.add(short, versions=[1, 2], labels=_LABELS)


def _answers(scene: Scene, short: str, label: str) -> str:
    return scene.predict(scene.spec(short, version_label=label), {"x": [0.0]})


def _resolved(scene: Scene) -> str:
    _serve(scene, "labelled")
    return f"{_answers(scene, 'labelled', 'stable')}; {_answers(scene, 'labelled', 'next')}"


def _unavailable(scene: Scene) -> str:
    """A label of a version that is not there, with a new model in the same list."""
    _serve(scene, "early")
    scene.write("unlabelled", 1, models.constant(1))
    scene.forget("early")
    refused = scene.refused(
        scene.model("early", versions=[1, 2], labels={"next": 9}), scene.model("unlabelled")
    )
    return f"{refused}; {scene.states('unlabelled')}; {_answers(scene, 'early', 'next')}"


def _replaced(scene: Scene) -> str:
    _serve(scene, "relabelled")
    scene.add("relabelled", versions=[1, 2], labels={"stable": 2})
    return f"{_answers(scene, 'relabelled', 'stable')}; {_answers(scene, 'relabelled', 'next')}"


def _unloaded(scene: Scene) -> str:
    """A label that still points to a version that is unloaded."""
    _serve(scene, "outlived")
    scene.add("outlived", versions=[2], labels=_LABELS)
    scene.settled("outlived", "1 END")
    return _answers(scene, "outlived", "stable")


def _omitted(scene: Scene) -> str:
    """The labels of a model that is not in the list any more."""
    _serve(scene, "omitted")
    scene.remove("omitted")
    return _answers(scene, "omitted", "next")


ROWS = [
    Row(
        "label-resolved",
        "a label leads to its version, which the answer names",
        "y=[1.0] by labelled 1 serving_default; y=[2.0] by labelled 2 serving_default",
        _resolved,
    ),
    Row(
        "label-unavailable",
        "a label of a version that is not available: no part of the list is applied",
        f"{_REFUSED.format(9, 'early')}; NOT_FOUND: *; y=[2.0] by early 2 *",
        _unavailable,
    ),
    Row(
        "label-replaced",
        "labels are replaced as a whole",
        "y=[2.0] by relabelled 2 serving_default; "
        "INVALID_ARGUMENT: Unrecognized servable version label: next",
        _replaced,
    ),
    Row(
        "label-unloaded",
        "a label whose version was unloaded",
        "NOT_FOUND: Servable not found for request: Specific(outlived, 1)",
        _unloaded,
    ),
    Row(
        "label-omitted",
        "labels of a model that is not listed any more",
        "INVALID_ARGUMENT: Unrecognized servable version label: next",
        _omitted,
    ),
    untried(
        "label-new", "a new label may point to a version that is not available", "OK", _ALLOWED
    ),
    untried(
        "label-moved",
        "a label may not be moved to a version that is not available",
        _REFUSED.format(9, "labelled"),
        _ALLOWED,
    ),
    untried(
        "label-disabled",
        "a server that allows no labels refuses a list that has some",
        "FAILED_PRECONDITION: Model version labels are not currently allowed by the server.",
        "a server built with allow_version_labels false; there is no flag",
    ),
]
