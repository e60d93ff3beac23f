"""ONNX models: packages of them, and the process that runs them.

The models that end the process divide the least integer by -1, which x86 processors refuse.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from outrigger_testenv import onnxfiles
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.features import (
    JOINED,
    TREATMENT,
    USER,
    Feature,
    Input,
    Metadata,
    Output,
    numeric,
    vector,
)
from outrigger_testenv.processes import Process

# The age of the user for whom `ends_at_a_call` ends the process. A generated request has 30.
AGE = 13.0
FEATURES = (
    numeric("age", entity=USER, default=30),
    numeric("price", entity=TREATMENT, required=True),
)

# The versions of the format and of its operators in the models that are made here.
_IR, _OPERATORS = 10, 21
_LEAST = np.iinfo(np.int32).min


def write(model: bytes, metadata: Metadata, directory: Path) -> ModelPackage:
    """Writes a model and its metadata.json into `directory`, which mirrors an image's /data."""
    file = Path(directory) / onnxfiles.FILE
    file.parent.mkdir(parents=True)
    file.write_bytes(model)
    described = Metadata(metadata.inputs, metadata.outputs, framework=onnxfiles.FRAMEWORK)
    described.write(Path(directory))
    return ModelPackage(directory)


def classifier(
    model: Any, features: Sequence[Feature], directory: Path, *, score_column: int = 1
) -> ModelPackage:
    """A package of a classifier of scikit-learn.

    `features` are its columns in order, each with its entity. The score is the probability of the
    class of `score_column`.
    """
    from skl2onnx import to_onnx

    one = np.zeros((1, len(features)), np.float32)
    exported = to_onnx(model, one, options={"zipmap": False})
    width = len(model.classes_)
    classes = Output("probabilities", "score", width=width, score_column=score_column)
    inputs = (Input("X", JOINED, "float32", tuple(features)),)
    return write(exported.SerializeToString(), Metadata(inputs, (classes,)), directory)


def identity(directory: Path, width: int = 20) -> ModelPackage:
    """A model that returns its input, which has a row of `width` numbers for each treatment."""
    from onnx import helper

    nodes = [helper.make_node("Identity", ["input"], ["output"])]
    model = _model(nodes, {"input": width}, {"output": width})
    rows = vector("values", width, entity=TREATMENT, required=True)
    inputs = (Input("input", JOINED, "float32", (rows,)),)
    return write(model, Metadata(inputs, (Output("output", "output", width=width),)), directory)


def dense(directory: Path, layers: int = 4, width: int = 2048) -> ModelPackage:
    """A network of `layers` dense layers of `width` numbers, and the mean of the last one."""
    from onnx import helper, numpy_helper

    draw = np.random.default_rng(27)
    nodes, weights, value = [], [], "input"
    for layer in range(layers):
        # Keeps the variance of a layer that of the one before.
        matrix = draw.normal(0, np.sqrt(2 / width), (width, width)).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"weights_{layer}"))
        bias = draw.normal(0, 0.1, width).astype(np.float32)
        weights.append(numpy_helper.from_array(bias, f"bias_{layer}"))
        names = [value, f"weights_{layer}", f"bias_{layer}"]
        nodes.append(helper.make_node("Gemm", names, [f"sum_{layer}"]))
        nodes.append(helper.make_node("Relu", [f"sum_{layer}"], [f"layer_{layer}"]))
        value = f"layer_{layer}"
    weights.append(numpy_helper.from_array(np.array([1]), "columns"))
    nodes.append(helper.make_node("ReduceMean", [value, "columns"], ["scores"], keepdims=1))
    model = _model(nodes, {"input": width}, {"scores": 1}, weights)
    rows = vector("values", width, entity=TREATMENT, required=True)
    inputs = (Input("input", JOINED, "float32", (rows,)),)
    return write(model, Metadata(inputs, (Output("scores", "score"),)), directory)


def table(directory: Path, rows: int = 5) -> ModelPackage:
    """Scores a treatment by the row of a table that its price is the number of."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Split", ["X"], ["age", "price"], axis=1, num_outputs=2),
        helper.make_node("Cast", ["price"], ["number"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "number"], ["scores"]),
    ]
    weights = [numpy_helper.from_array(np.arange(rows, dtype=np.float32), "table")]
    model = _model(nodes, {"X": 2}, {"scores": 1}, weights)
    inputs = (Input("X", JOINED, "float32", FEATURES),)
    return write(model, Metadata(inputs), directory)


BROKEN = ("operators", "format", "cycle", "types", "external")


def broken(how: str, directory: Path) -> ModelPackage:
    """A model that ONNX Runtime refuses to load, for one of the reasons `BROKEN`."""
    import onnx
    from onnx import TensorProto, helper

    package = identity(directory, width=2)
    file = Path(directory) / onnxfiles.FILE
    model = onnx.load(file)
    graph = model.graph
    if how == "operators":
        model.opset_import[0].version = 99
    elif how == "format":
        model.ir_version = 99
    elif how == "cycle":
        del graph.node[:]
        graph.node.extend(
            [
                helper.make_node("Add", ["input", "back"], ["there"]),
                helper.make_node("Identity", ["there"], ["back"]),
                helper.make_node("Identity", ["back"], ["output"]),
            ]
        )
    elif how == "types":
        graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    elif how == "external":
        weight = TensorProto(name="weight", data_type=TensorProto.FLOAT, dims=[1, 2])
        weight.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "weight.bin", "offset": "4", "length": "8"}.items():
            weight.external_data.add(key=key, value=value)
        (file.parent / "weight.bin").write_bytes(bytes(8))
        graph.initializer.append(weight)
        del graph.node[:]
        graph.node.append(helper.make_node("Add", ["input", "weight"], ["output"]))
    else:
        raise ValueError(how)
    file.write_bytes(model.SerializeToString())
    return package


def ends_at_load(directory: Path) -> ModelPackage:
    """Ends the process while ONNX Runtime computes the constants of its graph."""
    return _over_age_and_price(_division("minus_one"), directory)


def ends_at_a_call(directory: Path) -> ModelPackage:
    """Ends the process with a run for a user of the age `AGE`. Other scores are the price."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Equal", ["age", "fatal_age"], ["is_fatal"]),
        helper.make_node("Cast", ["is_fatal"], ["fatal"], to=TensorProto.INT32),
        helper.make_node("Mul", ["fatal", "two"], ["twice"]),
        helper.make_node("Sub", ["one", "twice"], ["divisor"]),
    ]
    return _over_age_and_price([*nodes, *_division("divisor")], directory)


def _division(divisor: str) -> list:
    """Adds 0 to the price, which is the quotient of the least integer, multiplied by 0."""
    from onnx import TensorProto, helper

    return [
        helper.make_node("Div", ["least", divisor], ["quotient"]),
        helper.make_node("Cast", ["quotient"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["number", "zero"], ["nothing"]),
        helper.make_node("Add", ["price", "nothing"], ["scores"]),
    ]


def _over_age_and_price(nodes: list, directory: Path) -> ModelPackage:
    from onnx import helper, numpy_helper

    columns = helper.make_node("Split", ["X"], ["age", "price"], axis=1, num_outputs=2)
    constants = {
        "fatal_age": np.float32([AGE]),
        "zero": np.float32([0]),
        "one": np.int32([1]),
        "two": np.int32([2]),
        "least": np.int32([_LEAST]),
        "minus_one": np.int32([-1]),
    }
    used = {name for node in nodes for name in node.input}
    weights = [numpy_helper.from_array(constants[name], name) for name in constants if name in used]
    model = _model([columns, *nodes], {"X": 2}, {"scores": 1}, weights)
    inputs = (Input("X", JOINED, "float32", FEATURES),)
    return write(model, Metadata(inputs), directory)


def _model(
    nodes: Sequence[Any],
    inputs: dict[str, int],
    outputs: dict[str, int],
    weights: Sequence[Any] = (),
) -> bytes:
    """A model whose inputs and outputs have any number of rows, of these widths."""
    from onnx import TensorProto, helper

    def ports(widths: dict[str, int]) -> list:
        return [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width])
            for name, width in widths.items()
        ]

    graph = helper.make_graph(nodes, "graph", ports(inputs), ports(outputs), weights)
    operators = [helper.make_opsetid("", _OPERATORS)]
    model = helper.make_model(graph, opset_imports=operators, ir_version=_IR)
    return model.SerializeToString()


class OnnxEngine:
    """`outrigger onnx`, with the library of this interpreter's onnxruntime."""

    def __init__(self, directory: Path, log: Path):
        directory.mkdir(parents=True, exist_ok=True)
        self._socket = directory / "onnx.sock"
        command = [outrigger(), "onnx", "--socket", self._socket, "--threads", "2"]
        self.process = Process("onnx", command, log, onnxfiles.library())

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry in the control plane's `engines`."""
        return {"kind": "onnx", "endpoint": f"unix:{self._socket}"}

    def start(self) -> None:
        """Starts it and waits until it listens."""
        self._socket.unlink(missing_ok=True)
        self.process.start()
        self.process.wait_until(self._socket.exists)
