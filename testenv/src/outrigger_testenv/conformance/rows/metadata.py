"""GetModelMetadata."""

from tensorflow_serving.apis import get_model_metadata_pb2

from outrigger_testenv.conformance.client import SIGNATURES, Spec, outcome
from outrigger_testenv.conformance.row import Row
from outrigger_testenv.conformance.scene import BASE, VERSION, Scene


def _asked(scene: Scene, spec: Spec | None, *fields: str) -> str:
    return outcome(lambda: f"{scene.client.metadata(spec, fields).model_spec}")


def _spec(scene: Scene) -> str:
    answer = scene.client.metadata(scene.spec(BASE, "other"))
    spec, keys = answer.model_spec, list(answer.metadata)
    return f"{spec.name} {spec.version.value} {spec.signature_name!r} {keys}"


def _map(scene: Scene) -> get_model_metadata_pb2.SignatureDefMap:
    answer = scene.client.metadata(scene.spec(BASE)).metadata[SIGNATURES]
    signatures = get_model_metadata_pb2.SignatureDefMap()
    if not answer.Unpack(signatures):
        raise ValueError(f"the type is {answer.type_url}")
    return signatures


def _defaults(scene: Scene) -> str:
    defaults = _map(scene).signature_def["optional"].defaults
    return f"{list(defaults)} {defaults['factor'].float_val[0]:g}"


ROWS = [
    Row(
        "metadata-spec",
        "the answer names the version but no signature, and has one key",
        f"base {VERSION} '' ['{SIGNATURES}']",
        _spec,
    ),
    Row(
        "metadata-signatures",
        "all signatures of the model",
        "classify constant matrix odd optional other regress serving_default",
        lambda scene: " ".join(sorted(_map(scene).signature_def)),
    ),
    Row("metadata-defaults", "the defaults of inputs are returned", "['factor'] 10", _defaults),
    Row(
        "metadata-no-field",
        "no metadata field",
        "INVALID_ARGUMENT: *",
        lambda scene: _asked(scene, scene.spec(BASE)),
    ),
    Row(
        "metadata-other-field",
        "another metadata field",
        "INVALID_ARGUMENT: *",
        lambda scene: _asked(scene, scene.spec(BASE), SIGNATURES, "other"),
    ),
    Row(
        "metadata-unknown-model",
        "a model that is not loaded",
        "NOT_FOUND: Servable not found for request: Latest(absent)",
        lambda scene: _asked(scene, scene.spec("absent"), SIGNATURES),
    ),
    Row(
        "metadata-unknown-version",
        "a version that is not loaded",
        "NOT_FOUND: Servable not found for request: Specific(base, 9)",
        lambda scene: _asked(scene, scene.spec(BASE, version=9), SIGNATURES),
    ),
    Row(
        "metadata-unknown-label",
        "a label that is not configured",
        "INVALID_ARGUMENT: Unrecognized servable version label: stable",
        lambda scene: _asked(scene, scene.spec(BASE, version_label="stable"), SIGNATURES),
    ),
]
