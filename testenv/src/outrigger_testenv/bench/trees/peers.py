"""Libraries that score models of XGBoost, in an environment of their own with pinned versions."""

from collections.abc import Sequence
from pathlib import Path

from outrigger_testenv.bench.trees import cache
from outrigger_testenv.bench.trees.workers import Worker
from outrigger_testenv.binary import repository

NAMES = ("daal4py", "onnxruntime", "treelite", "tl2cgen")

REQUIREMENTS = (
    "daal==2026.2.0",
    "numpy==2.4.6",
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


DOUBLE_REQUIREMENTS = (
    "catboost==1.2.10",
    "lightgbm==4.7.0",
    "lleaves==1.3.0",
    "llvmlite==0.44.0",
    "numpy==2.4.6",
    "pandas==3.1.1",
)
"""Those of LightGBM, CatBoost and lleaves, which needs an old LLVM."""

VARIABLES = {"PYTHONPATH": str(repository() / "testenv" / "src")}
"""The environment in which the modules of this package are found."""


def workers(models: Sequence[Path]) -> list[Worker]:
    """A worker for each library. Raises Skipped if the libraries cannot be installed."""
    python = cache.environment("peers", REQUIREMENTS) / "bin" / "python"
    command = [python, "-m", "outrigger_testenv.bench.trees.peer"]
    return [
        Worker(name, [*command, name, _compiled("compiled"), *models], VARIABLES) for name in NAMES
    ]


def double_worker(name: str, models: Sequence[Path]) -> Worker:
    """A worker for lleaves or CatBoost. Raises Skipped if they cannot be installed."""
    command = [double_python(), "-m", "outrigger_testenv.bench.trees.double_peer"]
    return Worker(name, [*command, name, _compiled("compiled-double"), *models], VARIABLES)


def double_python() -> Path:
    """The interpreter with LightGBM, CatBoost and lleaves. Raises Skipped as `workers`."""
    return cache.environment("peers-double", DOUBLE_REQUIREMENTS) / "bin" / "python"


def lightgbm() -> Path:
    """The library of LightGBM. Raises Skipped as `workers`."""
    (library,) = double_python().parents[1].glob("**/lightgbm/**/lib_lightgbm.so")
    return library


def _compiled(name: str) -> Path:
    """The directory of models that were converted or compiled."""
    directory = cache.root() / name
    directory.mkdir(exist_ok=True)
    return directory
