"""The models of the checks as packages of TensorFlow for Outrigger.

metadata.json declares the inputs as features where it can, and the outputs as scores. Models of
other types have an optional input and an output for it beside them, `row` and `score`.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from outrigger_testenv.builder import SAVED_MODEL, ModelPackage
from outrigger_testenv.conformance.models import DEFAULT, Signature, save
from outrigger_testenv.oip.models import Served
from outrigger_testenv.slow import late_number

_TYPES = {
    "FP32": tf.float32,
    "INT8": tf.int8,
    "INT32": tf.int32,
    "INT64": tf.int64,
    "UINT64": tf.uint64,
    "BOOL": tf.bool,
    "BYTES": tf.string,
    "FP16": tf.float16,
    "BF16": tf.bfloat16,
}
# The types that metadata.json has, with the value of an absent feature.
_FEATURES = {
    "FP32": ("float32", 0),
    "INT32": ("int32", 0),
    "INT64": ("int64", 0),
    "BOOL": ("bool", False),
    "BYTES": ("string", ""),
}
_NUMBERS = ("FP32", "INT32", "INT64")
# Features in a row.
_WIDTH = 2
# Time that a run of the slow model takes, in seconds.
_SLOW = 0.7
_NONFINITE = [[float("nan"), float("inf"), float("-inf")]]

Tensors = Mapping[str, Any]


@dataclass
class _Model:
    """A model as it is written, with the part of it that metadata.json declares."""

    inputs: dict[str, Any]
    outputs: dict[str, Any]
    datatype: str
    declared_inputs: list[str]
    declared_outputs: list[str]
    defaults: dict[str, Any] = field(default_factory=dict)


def package(served: Served, directory: Path) -> ModelPackage:
    """Writes the package of a model into a new directory."""
    with tf.Graph().as_default() as graph:
        model = _model(served)
        signature = Signature(model.inputs, model.outputs, defaults=model.defaults)
        save(graph, directory / SAVED_MODEL, {DEFAULT: signature})
    (directory / "metadata.json").write_text(json.dumps(_metadata(model)))
    return ModelPackage(directory)


def _model(served: Served) -> _Model:
    """A model in the current graph."""
    datatype, shape = served.datatype, [size if size > 0 else None for size in served.shape]
    kind = _TYPES[datatype]
    inputs = {name: tf.compat.v1.placeholder(kind, shape, name) for name in served.inputs}
    outputs = dict(zip(served.outputs, _answers(served.name, *inputs.values()), strict=True))
    model = _Model(inputs, outputs, datatype, list(inputs), list(outputs))
    is_declared = datatype in _FEATURES
    if not is_declared:
        row = tf.compat.v1.placeholder(tf.float32, [None, 1], "row")
        size = [_WIDTH if size is None else size for size in shape]
        model.inputs["row"] = row
        model.defaults = {"x": np.zeros(size), "row": np.zeros([1, 1])}
        model.declared_inputs, model.datatype = ["row"], "FP32"
    if not is_declared or datatype not in _NUMBERS or served.name == "nonfinite":
        rows = tf.shape(model.inputs[model.declared_inputs[0]])[0]
        model.outputs["score"] = tf.zeros([rows], name="score")
        model.declared_outputs = ["score"]
    return model


def _answers(name: str, x: Any, other: Any = None) -> Iterable[Any]:
    """The function of a model on its inputs."""
    if name == "pair":
        return [tf.add(x, other), tf.subtract(x, other)]
    if name == "nonfinite":
        return [tf.constant(_NONFINITE)]
    if name == "slow":
        return [x + 0 * tf.cast(late_number(_SLOW), tf.float32)]
    if name == "failing":
        return [x + 0 * tf.cast(_failure(tf.reduce_any(x > 0)), tf.float32)]
    return [tf.identity(x)]


def _failure(condition: Any) -> Any:
    """A number that cannot be computed if a condition holds: the engine fails with DATA_LOSS."""
    stream = tf.where(condition, tf.constant(b"no stream"), tf.constant(zlib.compress(b"")))
    return tf.strings.length(tf.io.decode_compressed(stream, "ZLIB"))


def _metadata(model: _Model) -> dict[str, Any]:
    dtype, default = _FEATURES[model.datatype]

    def features(name: str) -> list[dict[str, Any]]:
        width = model.inputs[name].shape[1] or _WIDTH
        return [{"name": f"{name}_{at}", "default": default} for at in range(width)]

    def output(name: str) -> dict[str, Any]:
        made = {"tensor": name, "name": name, "kind": "single"}
        is_wide = len(model.outputs[name].shape) > 1
        return made | ({"width": _WIDTH, "score": {"column": 0}} if is_wide else {})

    return {
        "schema": "outrigger.dev/model/v1",
        "framework": "tensorflow",
        "inputs": [
            {"tensor": name, "entity": "user", "dtype": dtype, "features": features(name)}
            for name in model.declared_inputs
        ],
        "outputs": [output(name) for name in model.declared_outputs],
    }
