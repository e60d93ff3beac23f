"""Boosters of XGBoost in model packages: their files, and XGBoost's own scores."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from outrigger_testenv import uplift as uplifts

FRAMEWORK = "xgboost"
# The input of every tree model.
FEATURES = "features"
LEAF = "leaf"

_OPTIONS = "options.json"
_FILES = ("model.ubj", "model.json")


def write(
    booster: Any,
    directory: Path,
    file: str,
    options: Mapping[str, Any],
    uplift: uplifts.SLearner | uplifts.TLearner | None = None,
) -> None:
    """Writes a booster and its options into `directory`/xgboost, and the further boosters of an
    uplift model. The name of the file decides its format, as XGBoost decides it. Options that are
    None are left out.
    """
    target = Path(directory) / FRAMEWORK
    target.mkdir(parents=True, exist_ok=True)
    booster.save_model(target / file)
    given = dict(options)
    if uplift is not None:
        uplift.write(target)
        given["uplift"] = uplift.settings
    given = {name: value for name, value in given.items() if value is not None}
    if given:
        (target / _OPTIONS).write_text(json.dumps(given) + "\n", encoding="utf-8")


def function(
    directory: Path, outputs: Iterable[str]
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """XGBoost's `outputs` of the model in a package, as a function of packed tensors."""
    import xgboost

    source = Path(directory) / FRAMEWORK
    file = next(source / name for name in _FILES if (source / name).is_file())
    booster = xgboost.Booster(model_file=file)
    options = source / _OPTIONS
    settings = json.loads(options.read_text(encoding="utf-8")) if options.is_file() else {}
    chosen = settings.get("iterations", "all")

    def iterations(of: Any) -> tuple[int, ...]:
        if chosen == "best":
            return (0, of.best_iteration + 1)
        # XGBoost's spelling of all iterations.
        return (0, 0) if chosen == "all" else tuple(chosen)

    def predict(of: Any, rows: np.ndarray, output: str) -> np.ndarray:
        missing = settings.get("missing", np.nan)
        if output == LEAF:
            matrix = xgboost.DMatrix(
                rows,
                missing=missing,
                feature_names=of.feature_names,
                feature_types=of.feature_types,
                enable_categorical=True,
            )
            leaves = of.predict(matrix, pred_leaf=True, iteration_range=iterations(of))
            return leaves.astype("int32")
        return of.inplace_predict(
            rows, iteration_range=iterations(of), predict_type=output, missing=missing
        )

    compare = None
    if (uplift := settings.get("uplift")) is not None:
        compare = uplifts.function(booster, source, uplift, predict)

    def call(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = tensors[FEATURES]
        if compare is None:
            return {output: predict(booster, rows, output) for output in outputs}
        arms = tensors.get(uplifts.ARM)
        return {output: compare(rows, arms, output) for output in outputs}

    return call
