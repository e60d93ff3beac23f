"""The files of ONNX models in packages, and their scores by ONNX Runtime itself."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

FRAMEWORK = "onnx"
FILE = Path("onnx", "model.onnx")
LIBRARY_ENV = "OUTRIGGER_ONNXRUNTIME"

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def function(directory: Path) -> Run:
    """The outputs of the model in a package's directory, by name, as a function of its inputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(Path(directory) / FILE)
    names = [output.name for output in session.get_outputs()]

    def call(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(names, session.run(names, dict(tensors)), strict=True))

    return call


def library() -> dict[str, str]:
    """The environment by which `outrigger onnx` finds this interpreter's ONNX Runtime. It is not
    imported.
    """
    found = find_spec("onnxruntime")
    return {LIBRARY_ENV: str(Path(found.origin).parent / "capi")} if found else {}
