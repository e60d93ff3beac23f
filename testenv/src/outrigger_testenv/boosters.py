"""Boosters in model packages: their files, and the scores of their own libraries."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from outrigger_testenv import libraries

FRAMEWORK = "xgboost"
FRAMEWORKS = (FRAMEWORK, libraries.LIGHTGBM, libraries.CATBOOST)
# The input of every tree model.
FEATURES = "features"
LEAF = "leaf"

_OPTIONS = "options.json"
_FILES = ("model.ubj", "model.json")


def write(
    booster: Any,
    directory: Path,
    file: str | None,
    iterations: str | Sequence[int] | None,
    missing: float | None,
) -> None:
    """Writes a booster and its options into the directory of its framework. The name of the file
    of XGBoost decides its format, as XGBoost decides it.
    """
    framework = libraries.framework(booster)
    target = Path(directory) / framework
    target.mkdir(parents=True, exist_ok=True)
    libraries.save(booster, target / (file or libraries.FILES.get(framework, _FILES[0])))
    given = {"iterations": iterations, "missing": missing}
    options = {name: value for name, value in given.items() if value is not None}
    if options:
        (target / _OPTIONS).write_text(json.dumps(options) + "\n", encoding="utf-8")


def function(
    directory: Path, outputs: Iterable[str]
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """The `outputs` of a package's model by its own library, as a function of packed tensors."""
    source = next(path for name in FRAMEWORKS if (path := Path(directory) / name).is_dir())
    options = source / _OPTIONS
    settings = json.loads(options.read_text(encoding="utf-8")) if options.is_file() else {}
    readers = {libraries.LIGHTGBM: libraries.lightgbm, libraries.CATBOOST: libraries.catboost}
    predict = readers.get(source.name, _xgboost)(source, settings)

    def call(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {output: predict(tensors[FEATURES], output) for output in outputs}

    return call


def _xgboost(source: Path, settings: Mapping[str, Any]) -> libraries.Predict:
    """XGBoost's predictions of the model in a package."""
    import xgboost

    file = next(source / name for name in _FILES if (source / name).is_file())
    booster = xgboost.Booster(model_file=file)
    chosen = settings.get("iterations", "all")
    if chosen == "best":
        chosen = (0, booster.best_iteration + 1)
    # XGBoost's spelling of all iterations.
    iterations = (0, 0) if chosen == "all" else tuple(chosen)

    def predict(rows: np.ndarray, output: str) -> np.ndarray:
        missing = settings.get("missing", np.nan)
        if output == LEAF:
            matrix = xgboost.DMatrix(
                rows,
                missing=missing,
                feature_names=booster.feature_names,
                feature_types=booster.feature_types,
                enable_categorical=True,
            )
            leaves = booster.predict(matrix, pred_leaf=True, iteration_range=iterations)
            return leaves.astype("int32")
        return booster.inplace_predict(
            rows, iteration_range=iterations, predict_type=output, missing=missing
        )

    return predict
