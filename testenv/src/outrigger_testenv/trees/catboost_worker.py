"""Writes the fixtures of CatBoost, whose wheel has to be importable. See
`outrigger_testenv.trees.worker`.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from outrigger_testenv.trees.results import write

FEATURES = 4
TRAINING = 200
ROWS = 14

COMMON = {
    "iterations": 3,
    "depth": 2,
    "learning_rate": 0.5,
    "random_seed": 3,
    "thread_count": 1,
    "logging_level": "Silent",
    "allow_writing_files": False,
}


@dataclass(frozen=True)
class Case:
    """A model to train."""

    name: str
    loss: str
    parameters: dict[str, object] = field(default_factory=dict)
    labels: str = "numbers"
    value: str | None = None
    """The library's name for predictions that are values; None for those that are margins."""
    refused: bool = False
    """True if the model is only read, to be refused."""
    names: bool = False


CASES = [
    Case("rmse", "RMSE", names=True),
    Case("nan-max", "RMSE", {"nan_mode": "Max"}),
    Case("ignored", "RMSE", {"ignored_features": [1]}),
    Case("deep", "RMSE", {"depth": 8, "iterations": 1}),
    Case("logloss", "Logloss", labels="classes 2", value="Probability"),
    Case("cross-entropy", "CrossEntropy", labels="classes 2", value="Probability"),
    Case("multiclass", "MultiClass", labels="classes 3", value="Probability"),
    Case("one-vs-all", "MultiClassOneVsAll", labels="classes 3", value="Probability"),
    Case("poisson", "Poisson", labels="positive", value="Exponent"),
    Case("tweedie", "Tweedie:variance_power=1.5", labels="positive", value="Exponent"),
    Case("uncertainty", "RMSEWithUncertainty", value="RMSEWithUncertainty"),
    Case("targets", "MultiRMSE", labels="targets"),
    Case("log-lin-quantile", "LogLinQuantile", labels="positive"),
    Case(
        "focal",
        "Focal:focal_alpha=0.7;focal_gamma=2",
        labels="classes 2",
        value="Probability",
    ),
    Case("multi-cross-entropy", "MultiCrossEntropy", labels="chances", value="Probability"),
    Case("no-rows-of-a-class", "MultiClass", {"classes_count": 4}, "classes 4", refused=True),
    Case("quantile", "Quantile:alpha=0.7"),
    Case("lossguide", "RMSE", {"grow_policy": "Lossguide", "max_leaves": 12, "depth": 9}),
    Case(
        "lossguide-classes",
        "MultiClass",
        {"grow_policy": "Lossguide", "max_leaves": 5, "depth": 4},
        labels="classes 3",
        value="Probability",
    ),
    Case("depthwise", "RMSE", {"grow_policy": "Depthwise", "depth": 4, "nan_mode": "Max"}),
    Case(
        "depthwise-logloss",
        "Logloss",
        {"grow_policy": "Depthwise", "min_data_in_leaf": 20, "depth": 5},
        labels="classes 2",
        value="Probability",
    ),
    Case(
        "depthwise-uncertainty",
        "RMSEWithUncertainty",
        {"grow_policy": "Depthwise", "depth": 3},
        value="RMSEWithUncertainty",
    ),
    Case("categories", "RMSE", {"cat_features": [1, 3]}, refused=True),
]


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        fixture(case, directory)


def fixture(case: Case, directory: Path) -> None:
    import catboost

    draw = np.random.default_rng(1)
    rows = features(TRAINING, draw)
    names = ["age", "price", "x 0", "länge"] if case.names else None
    table = rows
    if "cat_features" in case.parameters:
        table = np.nan_to_num(rows).astype(object)
        table[:, [1, 3]] = table[:, [1, 3]].astype(int).astype(str)
    parameters = {**COMMON, **case.parameters, "loss_function": case.loss}
    # The features of kinds are those of the table, not of the training.
    kinds = parameters.pop("cat_features", None)
    pool = catboost.Pool(table, labels(case.labels, rows, draw), kinds, feature_names=names)
    model = catboost.CatBoost(parameters)
    model.fit(pool)
    path = directory / f"{case.name}.json"
    model.save_model(path, format="json")
    if case.name == "rmse":
        model.save_model(directory / "binary.cbm")
    else:
        shorten(path)
    if not case.refused:
        loaded = catboost.CatBoost()
        loaded.load_model(path, format="json")
        write(path.with_suffix(".txt"), expected(loaded, case, scoring()))


def shorten(path: Path) -> None:
    """Removes what describes the training, but for the loss: most of a small file."""
    model = json.loads(path.read_text())
    info = model["model_info"]
    model["model_info"] = {"params": {"loss_function": info["params"]["loss_function"]}}
    if "class_params" in info:
        model["model_info"]["class_params"] = info["class_params"]
    path.write_text(json.dumps(model, indent=1))


def expected(model, case: Case, rows: np.ndarray):
    yield "rows", rows
    yield "margin", predict(model, rows, "RawFormulaVal")
    value = predict(model, rows, case.value or "RawFormulaVal")
    if case.value == "Exponent" or value.shape[1] != 2 or "classes 2" not in case.labels:
        yield "value", value
    else:
        yield "value", value[:, 1:]
    yield "leaf", np.asarray(model.calc_leaf_indexes(rows), dtype=np.float64)
    count = model.tree_count_
    if count > 1:
        yield "first", predict(model, rows, "RawFormulaVal", ntree_start=0, ntree_end=1)
        yield "others", predict(model, rows, "RawFormulaVal", ntree_start=1, ntree_end=count)


def predict(model, rows: np.ndarray, kind: str, **trees: int) -> np.ndarray:
    result = np.asarray(model.predict(rows, prediction_type=kind, thread_count=1, **trees))
    return result.reshape(len(rows), -1)


def features(count: int, draw: np.random.Generator) -> np.ndarray:
    rows = draw.normal(size=(count, FEATURES)).round(2)
    rows[:, 3] = draw.integers(0, 5, count)
    rows[draw.random(rows.shape) < 0.15] = np.nan
    return rows.astype(np.float32)


def scoring() -> np.ndarray:
    rows = features(ROWS, np.random.default_rng(2))
    rows[0] = np.nan
    rows[1] = 0
    rows[2], rows[3] = np.inf, -np.inf
    return rows


def labels(kind: str, rows: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    known = np.nan_to_num(rows)
    score = known[:, 0] - 0.5 * known[:, 1] + np.sin(3 * known[:, 2]) + (known[:, 3] == 2)
    score = score + 0.1 * draw.normal(size=len(rows))
    kind, _, classes = kind.partition(" ")
    if kind == "positive":
        return np.exp(score / 2)
    if kind == "classes":
        found = np.digitize(score, np.quantile(score, np.linspace(0, 1, int(classes) + 1)[1:-1]))
        # Class 2 of 4 has no rows.
        return np.where((classes == "4") & (found == 2), 3, found)
    if kind == "chances":
        return np.stack([1 / (1 + np.exp(-score)), 1 / (1 + np.exp(score))], axis=1)
    if kind == "targets":
        return np.stack([score, 1 - 2 * score], axis=1)
    return score


if __name__ == "__main__":
    main()
