"""ONNX models: packages of them, their own scores, and the engine that runs them."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.features import JOINED, Feature, Input, Metadata, Output
from outrigger_testenv.processes import Process

FILE = Path("onnx", "model.onnx")
LIBRARY_ENV = "OUTRIGGER_ONNXRUNTIME"


def sklearn_package(
    model: Any, features: Sequence[Feature], directory: Path, *, score_column: int = 1
) -> ModelPackage:
    """Exports a classifier of scikit-learn into `directory`, which mirrors an image's /data.

    `features` are its columns in order, each with its entity. The score is the probability of the
    class of `score_column`.
    """
    from skl2onnx import to_onnx

    one = np.zeros((1, len(features)), np.float32)
    exported = to_onnx(model, one, options={"zipmap": False})
    classes = Output(
        "probabilities", "score", width=len(model.classes_), score_column=score_column
    )
    inputs = (Input("X", JOINED, "float32", tuple(features)),)
    return write(exported.SerializeToString(), Metadata(inputs, (classes,)), directory)


def write(model: bytes, metadata: Metadata, directory: Path) -> ModelPackage:
    """Writes a model and its metadata.json into `directory`, which mirrors an image's /data."""
    file = Path(directory) / FILE
    file.parent.mkdir(parents=True)
    file.write_bytes(model)
    described = Metadata(metadata.inputs, metadata.outputs, framework="onnx")
    described.write(Path(directory))
    return ModelPackage(directory)


def run(package: ModelPackage, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of ONNX Runtime itself, by name."""
    import onnxruntime

    session = onnxruntime.InferenceSession(package.directory / FILE)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


class OnnxEngine:
    """`outrigger onnx`, with the library of this interpreter's onnxruntime."""

    def __init__(self, directory: Path, log: Path):
        directory.mkdir(parents=True, exist_ok=True)
        self._socket = directory / "onnx.sock"
        found = find_spec("onnxruntime")
        library = {LIBRARY_ENV: str(Path(found.origin).parent / "capi")} if found else {}
        command = [outrigger(), "onnx", "--socket", self._socket, "--threads", "2"]
        self.process = Process("onnx", command, log, library)

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry in the control plane's `engines`."""
        return {"kind": "onnx", "endpoint": f"unix:{self._socket}"}

    def start(self) -> None:
        """Starts it and waits until it listens."""
        self._socket.unlink(missing_ok=True)
        self.process.start()
        self.process.wait_until(self._socket.exists)
