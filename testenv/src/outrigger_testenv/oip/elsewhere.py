"""Packages of models on servers of the protocol: of models that a server has, and such that carry
the models for a server's repository.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.features import (
    JOINED,
    TREATMENT,
    USER,
    Input,
    Metadata,
    Output,
    numeric,
)

FRAMEWORK = "oip"

_SERVED = Path(__file__).parent / "served"
_CARRIED = "oip"
_SCALED, _CHAIN, _CODED = "scaled", "chain", "coded"
# The modules of `coded`, by the way in which they are imported.
_MODULES = ("eager", "relative", "in_load", "in_run")

USERS = pd.DataFrame({"age": [20.0, 47.5, 61.0]}, index=["u", "v", "w"])
OFFERS = pd.DataFrame({"price": np.float32([-2, 0.5, 3])}, index=["a", "b", "c"])
"""The user and treatment features of the golden cases."""

_AGE = numeric("age", entity=USER, default=30)
_PRICE = numeric("price", entity=TREATMENT, required=True)


def pair(directory: Path) -> ModelPackage:
    """A package of the model `pair` of the checks, which servers have: sums and differences."""
    others = (
        numeric("tenure", entity=USER, default=2),
        numeric("days", entity=TREATMENT, default=9),
    )
    inputs = (
        Input("a", JOINED, "float32", (_AGE, _PRICE)),
        Input("b", JOINED, "float32", others),
    )
    outputs = tuple(Output(name, name, width=2, score_column=1) for name in ("sum", "difference"))
    metadata = Metadata(inputs, outputs, framework=FRAMEWORK, remote={"model": "pair"})

    def function(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        a, b = tensors["a"], tensors["b"]
        return {"sum": a + b, "difference": a - b}

    return _package(directory, metadata, function)


def failing(directory: Path) -> ModelPackage:
    """A package of the model `failing` of the checks, without golden cases."""
    inputs = (Input("x", JOINED, "float32", (_AGE, _PRICE)),)
    outputs = (Output("OUT_x", "score", width=2),)
    directory.mkdir(parents=True, exist_ok=True)
    Metadata(inputs, outputs, framework=FRAMEWORK, remote={"model": "failing"}).write(directory)
    return ModelPackage(directory)


def scaled(directory: Path, scale: float, server: str) -> ModelPackage:
    """A package that carries a model for Triton or MLServer: the sum of a row, times `scale`."""
    model = directory / _CARRIED / _SCALED
    {"Triton": _for_triton, "MLServer": _for_mlserver}[server](model, scale)
    return of_rows(directory, _SCALED, scale)


def coded(directory: Path, number: int, server: str) -> ModelPackage:
    """A package for Triton or MLServer whose code is in several modules. Versions differ by the
    `number` in each: the score is the sum of a row, times the digits of all modules. It has no
    golden cases.
    """
    model = directory / _CARRIED / _CODED
    own = model / {"Triton": "1/own", "MLServer": "own"}[server]
    shutil.copytree(_SERVED / "own", own)
    for name in _MODULES:
        (own / f"{name}.py").write_text(f"NUMBER = {number}\n")
    if server == "Triton":
        shutil.copy(_SERVED / "triton_coded.py", model / "1" / "model.py")
        (model / "config.pbtxt").write_text(_CONFIGURATION.replace("scaled", _CODED))
    else:
        shutil.copy(_SERVED / "mlserver_coded.py", own / "models.py")
        settings = {"name": _CODED, "implementation": "own.models.Coded"}
        (model / "model-settings.json").write_text(json.dumps(settings))
    scale = int(str(number) * (len(_MODULES) + 1))
    (own / "pickled.py").write_text(f"class Pickled:\n    number = {number}\n")
    package = of_rows(directory, _CODED, scale)
    (directory / "golden.jsonl").unlink()
    return package


def chain(directory: Path, scale: float) -> ModelPackage:
    """A package that carries an ensemble of Triton: the scaled model, twice in a row."""
    _for_triton(directory / _CARRIED / _SCALED, scale)
    ensemble = directory / _CARRIED / _CHAIN
    (ensemble / "1").mkdir(parents=True)
    # Images have no empty directories, and a version of an ensemble has no files.
    (ensemble / "1" / "README").write_text("An ensemble has no files.\n")
    (ensemble / "config.pbtxt").write_text(_ENSEMBLE)
    return of_rows(directory, _CHAIN, scale, times=2)


def of_rows(directory: Path, model: str, scale: float, times: int = 1) -> ModelPackage:
    """A package of a model that scores rows of two columns; what it carries is there already."""
    inputs = (Input("x", JOINED, "float32", (_AGE, _PRICE)),)
    outputs = (Output("y", "score"),)
    metadata = Metadata(inputs, outputs, framework=FRAMEWORK, remote={"model": model})

    def function(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = tensors["x"]
        for _ in range(times):
            values = np.float32(scale) * values.sum(axis=1, keepdims=True)
        return {"y": values}

    return _package(directory, metadata, function)


def _package(directory: Path, metadata: Metadata, function: Any) -> ModelPackage:
    directory.mkdir(parents=True, exist_ok=True)
    metadata.write(directory)
    package = ModelPackage(directory, function)
    package.write_golden(USERS, OFFERS)
    return package


def _for_triton(model: Path, scale: float) -> None:
    (model / "1").mkdir(parents=True)
    shutil.copy(_SERVED / "triton_scaled.py", model / "1" / "model.py")
    (model / "1" / "scale.txt").write_text(str(scale))
    (model / "config.pbtxt").write_text(_CONFIGURATION)


def _for_mlserver(model: Path, scale: float) -> None:
    model.mkdir(parents=True)
    shutil.copy(_SERVED / "mlserver_scaled.py", model / "mlserver_scaled.py")
    (model / "scale.txt").write_text(str(scale))
    settings = {"name": _SCALED, "implementation": "mlserver_scaled.Scaled"}
    settings["parameters"] = {"uri": "./scale.txt"}
    (model / "model-settings.json").write_text(json.dumps(settings))


_CONFIGURATION = """name: "scaled"  # the name in the package
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""

_ENSEMBLE = """name: "chain"
platform: "ensemble"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "scaled" model_version: -1
      input_map { key: "x" value: "x" }
      output_map { key: "y" value: "between" }
    },
    {
      model_name: "scaled" model_version: -1
      input_map { key: "x" value: "between" }
      output_map { key: "y" value: "y" }
    }
  ]
}
"""
