"""SavedModels with known answers, written from graphs, and ways to damage them.

They are written without `tf.saved_model.save`, so that signatures may have any method name and
default, and the files are as small as possible.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from outrigger_testenv.slow import late_number

PREDICT = "tensorflow/serving/predict"
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
DEFAULT = "serving_default"
INITIAL = "__saved_model_init_op"
# Period at which an operation that waits for a file looks for it.
_LOOK_EVERY = 0.05

# Writes a model into a new directory.
Build = Callable[[Path], None]


@dataclass(frozen=True)
class Signature:
    """A signature: tensors by alias, and defaults of inputs that may be omitted."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    method: str = PREDICT
    defaults: Mapping[str, Any] = field(default_factory=dict)


def arithmetic(directory: Path) -> None:
    """The model of most rows, whose signatures compute y = x / 2 + 2 and z = x / 2 + 3."""
    with tf.Graph().as_default() as graph:
        x = _placeholder("x", [None, 1])
        factor = _placeholder("factor", [])
        matrix = _placeholder("matrix", [None, None])
        y = tf.add(0.5 * x, 2.0, "y")
        z = tf.add(0.5 * x, 3.0, "z")
        signatures = {
            DEFAULT: Signature({"x": x}, {"y": y, "z": z}),
            "other": Signature({"x": x}, {"y": z}),
            "classify": Signature({"inputs": x}, {"scores": y}, CLASSIFY),
            "regress": Signature({"inputs": x}, {"outputs": y}, REGRESS),
            "odd": Signature({"x": x}, {"y": y}, "odd/method"),
            "constant": Signature({}, {"y": tf.constant([7.0])}),
            "matrix": Signature({"a": matrix}, {"y": matrix @ tf.ones([3, 1])}),
            "optional": Signature(
                {"x": x, "factor": factor}, {"y": y * factor}, defaults={"factor": 10.0}
            ),
        }
        save(graph, directory, signatures)


def constant(number: float) -> Build:
    """A model whose output y is the number."""

    def build(directory: Path) -> None:
        with tf.Graph().as_default() as graph:
            x = _placeholder("x", [None])
            y = 0.0 * x + number
            save(graph, directory, {DEFAULT: Signature({"x": x}, {"y": y})})

    return build


def variable(directory: Path) -> None:
    """A model whose output y is x + 2, with 2 in a variable."""
    with tf.Graph().as_default() as graph:
        x = _placeholder("x", [None])
        held = tf.compat.v1.get_variable("two", initializer=2.0, use_resource=True)
        signatures = {DEFAULT: Signature({"x": x}, {"y": x + held})}
        with tf.compat.v1.Session() as session:
            session.run(held.initializer)
            saver = tf.compat.v1.train.Saver()
            (directory / "variables").mkdir(parents=True)
            saver.save(session, str(directory / "variables" / "variables"), write_meta_graph=False)
        (directory / "variables" / "checkpoint").unlink()
        save(graph, directory, signatures, saver=saver.as_saver_def())


def batched(directory: Path) -> None:
    """A model whose answers show their batch: `rows` is the number of its rows, `total` their
    sum. Its other signatures are those that a batch restricts.
    """
    with tf.Graph().as_default() as graph:
        x, wide = _placeholder("x", [None]), _placeholder("wide", [None] * 3)
        a, b, scalar = _placeholder("a", [None]), _placeholder("b", [None]), _placeholder("s", [])
        size, total = tf.shape(x), tf.reduce_sum(x)
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x > 0.0), ["negative"])]):
            positive = tf.identity(x)
        rows = {"rows": tf.fill(size, tf.cast(size[0], tf.float32)), "total": tf.fill(size, total)}
        signatures = {
            DEFAULT: Signature({"x": x}, rows),
            "wide": Signature({"x": wide}, {"y": tf.identity(wide)}),
            "pair": Signature({"a": a, "b": b}, {"y": tf.identity(a)}),
            "scalar": Signature({"x": scalar}, {"y": scalar + 1.0}),
            "none": Signature({}, {"y": tf.constant([7.0])}),
            "flat": Signature({"x": x}, {"y": total}),
            "positive": Signature({"x": x}, {"y": positive}),
        }
        save(graph, directory, signatures)


def waiting(directory: Path) -> None:
    """A model whose runs wait for a file: the first element of an input names the latch."""
    with tf.Graph().as_default() as graph:
        latches = tf.compat.v1.placeholder(tf.string, [None], "latches")
        x = _placeholder("x", [None])
        rounds = tf.fill(tf.shape(latches), _wait(latches[0]))
        signatures = {
            DEFAULT: Signature({"x": x}, {"y": x + 1.0}),
            "wait": Signature({"latches": latches}, {"rounds": rounds}),
        }
        save(graph, directory, signatures)


def waiting_load(latch: Path) -> Build:
    """A model whose load waits for a file."""

    def build(directory: Path) -> None:
        with tf.Graph().as_default() as graph:
            x = _placeholder("x", [None])
            with tf.control_dependencies([_wait(tf.constant(str(latch)))]):
                initial = tf.no_op("initial")
            save(graph, directory, {DEFAULT: Signature({"x": x}, {"y": x + 1.0})}, initial=initial)

    return build


def began(latch: Path) -> Path:
    """The file that exists as soon as something waits at a latch."""
    return latch.with_name(latch.name + ".began")


def released(latch: Path) -> Path:
    """The file whose creation releases a latch."""
    return latch.with_name(latch.name + ".released")


def without(*names: str) -> Build:
    """A model with a variable, without some of its files or directories."""

    def build(directory: Path) -> None:
        variable(directory)
        for name in names:
            path = directory / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return build


def damaged(name: str, change: Callable[[bytes], bytes]) -> Build:
    """A model with a variable, one of whose files is changed."""

    def build(directory: Path) -> None:
        variable(directory)
        (file,) = directory.glob(name)
        file.write_bytes(change(file.read_bytes()))

    return build


def empty(directory: Path) -> None:
    """A directory without any file."""
    directory.mkdir(parents=True)


def _placeholder(name: str, shape: list[int | None]) -> Any:
    return tf.compat.v1.placeholder(tf.float32, shape, name)


def _wait(latch: Any) -> Any:
    """The number of looks until the latch is released. The file `began` is written at the first."""
    write = tf.raw_ops.WriteFile(filename=latch + ".began", contents="")
    with tf.control_dependencies([write]):
        start = tf.constant(0, tf.int64) + tf.cast(tf.size(latch), tf.int64)

    def is_held(look: Any) -> Any:
        # The name depends on the round, or the graph's optimiser would look only once.
        nothing = tf.strings.substr(tf.strings.as_string(look), 0, 0)
        return tf.equal(tf.size(tf.io.matching_files(latch + ".released" + nothing)), 0)

    def pause(look: Any) -> Any:
        return look + 1 + 0 * late_number(_LOOK_EVERY)

    return tf.compat.v1.while_loop(is_held, pause, [start])


def save(
    graph: Any,
    directory: Path,
    signatures: Mapping[str, Signature],
    *,
    initial: Any = None,
    saver: Any = None,
) -> None:
    """Writes a graph as a SavedModel with these signatures."""
    model = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.graph_def.CopyFrom(graph.as_graph_def())
    for name, signature in signatures.items():
        meta.signature_def[name].CopyFrom(_definition(signature))
    if initial is not None:
        meta.signature_def[INITIAL].outputs[INITIAL].name = initial.name
    if saver is not None:
        meta.saver_def.CopyFrom(saver)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "saved_model.pb").write_bytes(model.SerializeToString())


def _definition(signature: Signature) -> meta_graph_pb2.SignatureDef:
    definition = meta_graph_pb2.SignatureDef(method_name=signature.method)
    for tensors, infos in (
        (signature.inputs, definition.inputs),
        (signature.outputs, definition.outputs),
    ):
        for alias, tensor in tensors.items():
            infos[alias].name = tensor.name
            infos[alias].dtype = tensor.dtype.base_dtype.as_datatype_enum
            infos[alias].tensor_shape.CopyFrom(tensor.shape.as_proto())
    for alias, value in signature.defaults.items():
        definition.defaults[alias].CopyFrom(
            tf.make_tensor_proto(value, signature.inputs[alias].dtype)
        )
    return definition
