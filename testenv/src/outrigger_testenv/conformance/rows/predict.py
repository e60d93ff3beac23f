"""Predict: which servable answers, and how requests are checked."""

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from outrigger_testenv.conformance import models
from outrigger_testenv.conformance.client import Spec
from outrigger_testenv.conformance.row import Row, untried
from outrigger_testenv.conformance.scene import BASE, VERSION, Scene, X

_NO_MATCH = "INVALID_ARGUMENT: input size does not match signature: {} Missing but required: {}"


def _latest(scene: Scene) -> str:
    """The answer of a model whose version 1 is available, and whose version 2 has failed."""
    scene.write("newest", 1, models.constant(1))
    scene.add("newest", versions="all")
    scene.write("newest", 2, models.empty)
    scene.settled("newest", "2 END")
    return scene.predict("newest", {"x": [0.0]})


def _deadline(scene: Scene) -> str:
    """A run that does not end by itself, and the removal of its model after the deadline."""
    scene.write("late", 1, models.waiting)
    scene.add("late")
    spec = scene.spec("late", "wait")
    seen = scene.predict(spec, {"latches": [str(scene.latch("late"))]}, timeout=0.5)
    scene.remove("late")
    return f"{seen.partition(':')[0]}; {scene.settled('late', 'END')}"


def _without_variables(scene: Scene) -> str:
    scene.write("weightless", 1, models.without("variables"))
    scene.add("weightless")
    return scene.predict("weightless", {"x": [0.0]})


def _long_message(scene: Scene) -> str:
    seen = scene.predict("n" * 2000)
    return f"{seen} of {len(seen.removeprefix('NOT_FOUND: '))} bytes"


def _lists(scene: Scene) -> str:
    call = scene.client.predict(scene.spec(BASE), {"x": [[2.0], [4.0]]}, ["y"])
    fields = [field.name for field, _ in call.result().outputs["y"].ListFields()]
    return " ".join(fields)


def _tensor(**fields) -> dict[str, tensor_pb2.TensorProto]:
    """The input of two rows, with other fields."""
    shape = tf.TensorShape([2, 1]).as_proto()
    return {"x": tensor_pb2.TensorProto(dtype=1, tensor_shape=shape, **fields)}


def _sends(name: str, about: str, expected: str, inputs: dict) -> Row:
    """A Predict call of the base model for output y."""
    return Row(
        f"predict-{name}", about, expected, lambda scene: scene.predict(BASE, inputs, ("y",))
    )


def _signature(name: str, expected: str, inputs: dict, about: str) -> Row:
    return Row(
        f"predict-signature-{name}",
        about,
        expected,
        lambda scene: scene.predict(scene.spec(BASE, name), inputs),
    )


def _unknown(name: str, about: str, expected: str, **choice) -> Row:
    return Row(
        f"predict-{name}",
        about,
        expected,
        lambda scene: scene.predict(scene.spec(BASE, **choice), {"wrong": [0.0]}),
    )


_SERVABLES = [
    Row(
        "predict-spec",
        "the answer names the version and the signature",
        f"y=[[3.0]] z=[[4.0]] by base {VERSION} serving_default",
        lambda scene: scene.predict(BASE),
    ),
    Row(
        "predict-version",
        "a version by its number",
        f"y=[[3.0]] z=[[4.0]] by base {VERSION} serving_default",
        lambda scene: scene.predict(scene.spec(BASE, version=VERSION)),
    ),
    Row(
        "predict-no-spec",
        "no model spec",
        "INVALID_ARGUMENT: Missing ModelSpec",
        lambda scene: scene.predict(None),
    ),
    Row(
        "predict-no-name",
        "a model spec without a name",
        "INVALID_ARGUMENT: ModelSpec has no name specified.",
        lambda scene: scene.predict(Spec(), X),
    ),
    Row(
        "predict-unknown-model",
        "a model that is not loaded",
        "NOT_FOUND: Servable not found for request: Latest(absent)",
        lambda scene: scene.predict("absent"),
    ),
    _unknown(
        "unknown-version",
        "a version that is not loaded, before inputs are checked",
        "NOT_FOUND: Servable not found for request: Specific(base, 9)",
        version=9,
    ),
    _unknown(
        "unknown-label",
        "a label that is not configured, before inputs are checked",
        "INVALID_ARGUMENT: Unrecognized servable version label: stable",
        version_label="stable",
    ),
    Row(
        "predict-latest",
        "without a version the highest available one answers, not the highest on disk",
        "y=[1.0] by newest 1 serving_default",
        _latest,
    ),
]
_SIGNATURES = [
    _signature("other", f"y=[[4.0]] by base {VERSION} other", X, "a signature by its key"),
    _signature(
        "classify",
        f"scores=[[3.0]] by base {VERSION} classify",
        {"inputs": [[2.0]]},
        "a signature of the method classify",
    ),
    _signature(
        "regress",
        f"outputs=[[3.0]] by base {VERSION} regress",
        {"inputs": [[2.0]]},
        "a signature of the method regress",
    ),
    _signature(
        "odd", f"y=[[3.0]] by base {VERSION} odd", X, "a signature of an unknown method name"
    ),
    _signature("constant", f"y=[7.0] by base {VERSION} constant", {}, "a signature without inputs"),
    _signature(
        "optional",
        f"y=[[30.0]] by base {VERSION} optional",
        X,
        "an input is omitted that has a default",
    ),
    _signature(
        "absent",
        'FAILED_PRECONDITION: Serving signature key "absent" not found.',
        X,
        "an unknown signature",
    ),
    untried(
        "predict-method-check",
        "a signature of an unknown method name is refused",
        "INTERNAL: Expected prediction signature method_name to be one of *",
        "--enable_signature_method_name_check",
    ),
]
_INPUTS = [
    _sends(
        "no-inputs",
        "no inputs",
        _NO_MATCH.format("0!=1 len({}) != len({x}). Sent extra: {}.", "{x}."),
        {},
    ),
    _sends(
        "too-many-inputs",
        "an input too many",
        _NO_MATCH.format("2!=1 len({*}) != len({x}). Sent extra: {k}.", "{}."),
        {**X, "k": [1.0]},
    ),
    _sends(
        "wrong-input",
        "as many inputs as in the signature, one of another name",
        "INVALID_ARGUMENT: Signature input alias: x(feed name: x:0) not found in request and no "
        "default value provided. *",
        {"k": [1.0]},
    ),
    Row(
        "predict-wrong-name-beside-default",
        "an input of another name, in a signature that has defaults",
        "INVALID_ARGUMENT: Inputs contains invalid name. Used request inputs: *",
        lambda scene: scene.predict(scene.spec(BASE, "optional"), {**X, "k": 1.0}),
    ),
    _sends(
        "malformed-tensor",
        "a tensor whose content is too short",
        "INVALID_ARGUMENT: tensor parsing error: x",
        _tensor(tensor_content=b"123"),
    ),
    _sends(
        "short-list",
        "a list that is shorter than the shape repeats its last value",
        f"y=[[3.0], [3.0]] by base {VERSION} serving_default",
        _tensor(float_val=[2.0]),
    ),
    _sends(
        "long-list",
        "the rest of a list that is longer than the shape is ignored",
        f"y=[[3.0], [4.0]] by base {VERSION} serving_default",
        _tensor(float_val=[2.0, 4.0, 6.0]),
    ),
    _sends(
        "other-list",
        "values in the list of another type are ignored",
        f"y=[[2.0], [2.0]] by base {VERSION} serving_default",
        _tensor(int_val=[2, 4]),
    ),
    _sends(
        "wrong-type",
        "a tensor of another type",
        "INVALID_ARGUMENT: Expects arg[0] to be float but int32 is provided*",
        {"x": tf.make_tensor_proto([[2]], tf.int32)},
    ),
    _sends(
        "other-shape",
        "shapes of the signature are not enforced",
        f"y=[3.0, 4.0] by base {VERSION} serving_default",
        {"x": [2.0, 4.0]},
    ),
    Row(
        "predict-impossible-shape",
        "a shape that an operation refuses",
        "INVALID_ARGUMENT: Matrix size-incompatible: In[0]: [2,4], In[1]: [3,1]*",
        lambda scene: scene.predict(scene.spec(BASE, "matrix"), {"a": [[1.0] * 4] * 2}),
    ),
]
_OUTPUTS = [
    Row(
        "predict-filter",
        "a filter selects outputs",
        f"z=[[4.0]] by base {VERSION} serving_default",
        lambda scene: scene.predict(BASE, X, ("z",)),
    ),
    Row(
        "predict-unknown-output",
        "a filter with an unknown output",
        "INVALID_ARGUMENT: output tensor alias not found in signature: k Outputs expected to be in "
        "the set {*}.",
        lambda scene: scene.predict(BASE, X, ("k",)),
    ),
    Row(
        "predict-duplicate-output",
        "a filter with the same output twice",
        "INVALID_ARGUMENT: duplicate output tensor alias: y",
        lambda scene: scene.predict(BASE, X, ("y", "y")),
    ),
    Row(
        "predict-lists",
        "outputs are lists of values",
        "dtype tensor_shape float_val",
        _lists,
    ),
    untried(
        "predict-content",
        "outputs are tensor_content",
        "dtype tensor_shape tensor_content",
        "--enable_serialization_as_tensor_content",
    ),
]
_FAILURES = [
    Row(
        "predict-long-message",
        "a long message is cut",
        "NOT_FOUND: Servable not found for request: Latest(*...TRUNCATED of 1036 bytes",
        _long_message,
    ),
    Row(
        "predict-deadline",
        "a run ends at its deadline, so that its model can be unloaded",
        "DEADLINE_EXCEEDED; 1 END",
        _deadline,
    ),
    Row(
        "predict-no-variables",
        "a model that was loaded without its variables",
        "FAILED_PRECONDITION: *",
        _without_variables,
    ),
    untried(
        "predict-exhausted",
        "more calls at a time than there are threads",
        "RESOURCE_EXHAUSTED: *",
        "--grpc_max_threads=1",
    ),
]
ROWS = [*_SERVABLES, *_SIGNATURES, *_INPUTS, *_OUTPUTS, *_FAILURES]
