"""Boosters of LightGBM and CatBoost in model packages: their files, and their own scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LIGHTGBM = "lightgbm"
CATBOOST = "catboost"
# The files of the frameworks.
FILES = {LIGHTGBM: "model.txt", CATBOOST: "model.json"}


@dataclass(frozen=True)
class Model:
    """A model file that a library has read."""

    names: Sequence[str] | None
    """The names of the features, if they have any."""
    predict: Callable[[np.ndarray, str], np.ndarray]
    """Rows and the name of an output to its values."""


_VALUES = {
    **dict.fromkeys(["Logloss", "CrossEntropy", "Focal"], "Probability"),
    **dict.fromkeys(["MultiClass", "MultiClassOneVsAll"], "Probability"),
    **dict.fromkeys(["MultiLogloss", "MultiCrossEntropy"], "Probability"),
    **dict.fromkeys(["Poisson", "Tweedie"], "Exponent"),
    "RMSEWithUncertainty": "RMSEWithUncertainty",
}
"""CatBoost's name for predictions that are values, by the loss; of others margins are."""


def framework(booster: Any) -> str:
    """The framework of a booster: the name of its library."""
    return type(booster).__module__.partition(".")[0]


def save(booster: Any, path: Path) -> None:
    """Saves a booster of any library. That of LightGBM may be inside an estimator."""
    if framework(booster) == CATBOOST:
        return booster.save_model(path, format="json")
    return getattr(booster, "booster_", booster).save_model(path)


def lightgbm(file: Path, settings: Mapping[str, Any]) -> Model:
    """A model in LightGBM, whose predictions are float32."""
    import lightgbm

    booster = lightgbm.Booster(model_file=file)
    chosen = settings.get("iterations", "all")
    first, end = (0, -1) if chosen == "all" else chosen
    iterations = {"start_iteration": first, "num_iteration": end - first if end > 0 else -1}

    def predict(rows: np.ndarray, output: str) -> np.ndarray:
        rows = _with_missing(rows, settings)
        kind = {"value": {}, "margin": {"raw_score": True}, "leaf": {"pred_leaf": True}}[output]
        result = np.asarray(booster.predict(rows, num_threads=1, **iterations, **kind))
        return result.astype("int32" if output == "leaf" else "float32")

    return Model(booster.feature_name(), predict)


def catboost(file: Path, settings: Mapping[str, Any]) -> Model:
    """A model in CatBoost, whose predictions are float32."""
    import catboost

    model = catboost.CatBoost()
    model.load_model(file, format="json")
    loss = model.get_all_params()["loss_function"].partition(":")[0]
    chosen = settings.get("iterations", "all")
    first, end = (0, 0) if chosen == "all" else chosen
    trees = {"ntree_start": first, "ntree_end": end, "thread_count": 1}

    def predict(rows: np.ndarray, output: str) -> np.ndarray:
        rows = _with_missing(rows, settings)
        if output == "leaf":
            return np.asarray(model.calc_leaf_indexes(rows, **trees)).astype("int32")
        kind = _VALUES.get(loss, "RawFormulaVal") if output == "value" else "RawFormulaVal"
        result = np.asarray(model.predict(rows, prediction_type=kind, **trees))
        if kind == "Probability" and loss in ("Logloss", "CrossEntropy", "Focal"):
            result = result[:, 1]
        return result.astype("float32")

    return Model(model.feature_names_, predict)


def _with_missing(rows: np.ndarray, settings: Mapping[str, Any]) -> np.ndarray:
    missing = settings.get("missing")
    return rows if missing is None else np.where(rows == rows.dtype.type(missing), np.nan, rows)
