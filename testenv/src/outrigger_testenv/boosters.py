"""Boosters of XGBoost in model packages: their files, and XGBoost's own scores."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FRAMEWORK = "xgboost"
# The input of every tree model.
FEATURES = "features"
OUTPUTS = ("value", "margin")

_OPTIONS = "options.json"
_FILES = ("model.ubj", "model.json")


def write(
    booster: Any,
    directory: Path,
    file: str,
    iterations: str | Sequence[int] | None,
    missing: float | None,
) -> None:
    """Writes a booster and its options into `directory`/xgboost. The name of the file decides its
    format, as XGBoost decides it.
    """
    target = Path(directory) / FRAMEWORK
    target.mkdir(parents=True, exist_ok=True)
    booster.save_model(target / file)
    given = {"iterations": iterations, "missing": missing}
    options = {name: value for name, value in given.items() if value is not None}
    if options:
        (target / _OPTIONS).write_text(json.dumps(options) + "\n", encoding="utf-8")


def function(directory: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """XGBoost's scores of the model in a package, as a function of packed tensors."""
    import xgboost

    source = Path(directory) / FRAMEWORK
    file = next(source / name for name in _FILES if (source / name).is_file())
    booster = xgboost.Booster(model_file=file)
    options = source / _OPTIONS
    settings = json.loads(options.read_text(encoding="utf-8")) if options.is_file() else {}
    chosen = settings.get("iterations", "all")
    if chosen == "best":
        chosen = (0, booster.best_iteration + 1)
    # XGBoost's spelling of all iterations.
    iterations = (0, 0) if chosen == "all" else tuple(chosen)

    def call(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = tensors[FEATURES]
        return {
            output: booster.inplace_predict(
                rows,
                iteration_range=iterations,
                predict_type=output,
                missing=settings.get("missing", np.nan),
            )
            for output in OUTPUTS
        }

    return call
