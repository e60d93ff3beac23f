"""Boosters in model packages: their files, and the scores of their own libraries."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from outrigger_testenv import libraries
from outrigger_testenv import uplift as uplifts
from outrigger_testenv.features import Metadata

FRAMEWORK = "xgboost"
FRAMEWORKS = (FRAMEWORK, libraries.LIGHTGBM, libraries.CATBOOST)
# The input of every tree model.
FEATURES = "features"
LEAF = "leaf"
# XGBoost's contributions to the margin: of each column, and behind them the base value. The outputs
# of an uplift model have them too, as `contributions_uplift`.
CONTRIBUTIONS = "contributions"

# The outputs that XGBoost computes for a matrix only: the parameter of its `predict`, and the type.
_OF_MATRIX = {LEAF: ("pred_leaf", "int32"), CONTRIBUTIONS: ("pred_contribs", "float32")}
_OPTIONS = "options.json"
_FILES = ("model.ubj", "model.json")


def write(
    booster: Any,
    directory: Path,
    file: str | None,
    options: Mapping[str, Any],
    uplift: uplifts.SLearner | uplifts.TLearner | None = None,
) -> None:
    """Writes a booster and its options into the directory of its framework, and the further
    boosters of an uplift model. The name of XGBoost's file decides its format, as XGBoost decides
    it. Options that are None are left out.
    """
    framework = libraries.framework(booster)
    target = Path(directory) / framework
    target.mkdir(parents=True, exist_ok=True)
    libraries.save(booster, target / (file or libraries.FILES.get(framework, _FILES[0])))
    if uplift is not None:
        uplift.write(target)
    given = {name: value for name, value in options.items() if value is not None}
    if given:
        (target / _OPTIONS).write_text(json.dumps(given) + "\n", encoding="utf-8")


def function(
    directory: Path, outputs: Iterable[str]
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """The `outputs` of a package's model by its own library, as a function of packed tensors."""
    source = next(path for name in FRAMEWORKS if (path := Path(directory) / name).is_dir())
    options = source / _OPTIONS
    settings = json.loads(options.read_text(encoding="utf-8")) if options.is_file() else {}
    predict = _predict(source, settings, Metadata.read(Path(directory)).uplift)

    def call(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {output: predict(tensors, output) for output in outputs}

    return call


Predict = Callable[[Mapping[str, np.ndarray], str], np.ndarray]
"""Packed tensors and the name of an output to its values."""


def _predict(
    source: Path, settings: Mapping[str, Any], uplift: Mapping[str, Any] | None
) -> Predict:
    """The predictions of the model in `source`; of an uplift model, compared with its control."""

    def read(file: Path) -> libraries.Model:
        return _READERS[source.name](file, settings)

    files = [libraries.FILES[source.name]] if source.name in libraries.FILES else _FILES
    model = read(next(source / name for name in files if (source / name).is_file()))
    if uplift is not None:
        compare = uplifts.function(model, read, source, uplift)
        return lambda tensors, output: compare(tensors[FEATURES], tensors.get(uplifts.ARM), output)
    return lambda tensors, output: model.predict(tensors[FEATURES], output)


def _xgboost(file: Path, settings: Mapping[str, Any]) -> libraries.Model:
    """A model in XGBoost."""
    import xgboost

    booster = xgboost.Booster(model_file=file)
    chosen = settings.get("iterations", "all")
    if chosen == "best":
        iterations = (0, booster.best_iteration + 1)
    else:
        # XGBoost's spelling of all iterations.
        iterations = (0, 0) if chosen == "all" else tuple(chosen)

    def predict(rows: np.ndarray, output: str) -> np.ndarray:
        missing = settings.get("missing", np.nan)
        if output in _OF_MATRIX:
            matrix = xgboost.DMatrix(
                rows,
                missing=missing,
                feature_names=booster.feature_names,
                feature_types=booster.feature_types,
                enable_categorical=True,
            )
            parameter, dtype = _OF_MATRIX[output]
            found = booster.predict(matrix, iteration_range=iterations, **{parameter: True})
            return found.astype(dtype)
        return booster.inplace_predict(
            rows, iteration_range=iterations, predict_type=output, missing=missing
        )

    return libraries.Model(booster.feature_names, predict)


_READERS = {
    FRAMEWORK: _xgboost,
    libraries.LIGHTGBM: libraries.lightgbm,
    libraries.CATBOOST: libraries.catboost,
}
