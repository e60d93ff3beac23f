"""Libraries that score models of XGBoost, in an environment of their own with pinned versions."""

from collections.abc import Sequence
from pathlib import Path

from outrigger_testenv.bench.trees import cache
from outrigger_testenv.bench.trees.workers import Worker
from outrigger_testenv.binary import repository

NAMES = ("daal4py", "onnxruntime", "treelite", "tl2cgen")

REQUIREMENTS = (
    "daal==2026.2.0",
    "numpy==2.5.5",
    "onnx==1.23.2",
    "onnxmltools==1.16.0",
    "onnxruntime==1.31.1",
    "scikit-learn-intelex==2026.2.0",
    "skl2onnx==1.20.0",
    "tl2cgen==1.0.0",
    "treelite==4.8.1",
    "xgboost-cpu==3.0.5",
)
"""The versions, with those of the converters."""


def workers(models: Sequence[Path]) -> list[Worker]:
    """A worker for each library. Raises Skipped if the libraries cannot be installed."""
    python = cache.environment("peers", REQUIREMENTS) / "bin" / "python"
    compiled = cache.root() / "compiled"
    compiled.mkdir(exist_ok=True)
    variables = {"PYTHONPATH": str(repository() / "testenv" / "src")}
    module = ["-m", "outrigger_testenv.bench.trees.peer"]
    return [Worker(name, [python, *module, name, compiled, *models], variables) for name in NAMES]
