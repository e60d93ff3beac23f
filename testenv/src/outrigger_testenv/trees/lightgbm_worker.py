"""Writes the fixtures of one version of LightGBM. See `outrigger_testenv.trees.worker`."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from outrigger_testenv.trees.lightgbm import Booster, Dataset, Library
from outrigger_testenv.trees.results import write

FEATURES = 5
TRAINING = 300
ROWS = 14
NEAREST = 10
"""Rows beside the thresholds of a model."""
START = 1_700_000_000

COMMON = {
    "verbosity": -1,
    "num_threads": 1,
    "seed": 3,
    "num_leaves": 6,
    "min_data_in_leaf": 5,
    "learning_rate": 0.5,
}
NAMES = ["age", "price", "x(0)", "d-1", "e_e"]
CATEGORIES = {
    "categorical_feature": "3,4",
    "min_data_per_group": 5,
    "cat_smooth": 1,
    "cat_l2": 1,
    "max_cat_to_onehot": 1,
}
LINEAR = {"linear_tree": "true"}
FOREST = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}


@dataclass(frozen=True)
class Case:
    """A model to train, and the versions of LightGBM that can."""

    name: str
    parameters: dict[str, object]
    rounds: int = 3
    labels: str = "numbers"
    since: tuple[int, ...] = (2,)
    """The first version that has it."""
    plain: bool = False
    """True if only its objective is special, so that one version is enough."""
    complete: bool = False
    """True if no value is missing in the training."""
    names: bool = False
    doubles: bool = False
    """True if its rows are f64 that f32 does not tell apart: times of an hour, in seconds."""


CASES = [
    Case("regression", {"objective": "regression"}, names=True),
    Case("sqrt", {"objective": "regression", "reg_sqrt": "true"}, plain=True),
    Case("absolute", {"objective": "regression_l1"}, plain=True),
    Case("huber", {"objective": "huber"}, plain=True),
    Case("quantile", {"objective": "quantile", "alpha": 0.7}, plain=True),
    Case("poisson", {"objective": "poisson"}, labels="positive", plain=True),
    Case("gamma", {"objective": "gamma"}, labels="positive", plain=True),
    Case("tweedie", {"objective": "tweedie"}, labels="positive", plain=True),
    Case("binary", {"objective": "binary"}, labels="classes 2"),
    Case("sigmoid", {"objective": "binary", "sigmoid": 0.7}, labels="classes 2", plain=True),
    Case("cross-entropy", {"objective": "cross_entropy"}, labels="classes 2", plain=True),
    Case(
        "cross-entropy-lambda",
        {"objective": "cross_entropy_lambda"},
        labels="classes 2",
        plain=True,
    ),
    Case("multiclass", {"objective": "multiclass", "num_class": 3}, labels="classes 3"),
    Case(
        "multiclass-ova",
        {"objective": "multiclassova", "num_class": 3, "sigmoid": 0.7},
        labels="classes 3",
        plain=True,
    ),
    Case("lambdarank", {"objective": "lambdarank"}, labels="ranks", plain=True),
    Case("dart", {"objective": "regression", "boosting": "dart", "drop_rate": 0.5}, plain=True),
    Case("forest", {"objective": "regression", **FOREST}),
    Case(
        "forest-classes",
        {"objective": "multiclass", "num_class": 3, **FOREST},
        labels="classes 3",
        plain=True,
    ),
    Case("zero-as-missing", {"objective": "regression", "zero_as_missing": "true"}),
    Case("no-missing", {"objective": "regression", "use_missing": "false"}),
    Case("complete", {"objective": "regression"}, complete=True),
    Case("categories", {"objective": "binary", **CATEGORIES}, labels="classes 2"),
    Case("categories-complete", {"objective": "regression", **CATEGORIES}, complete=True),
    Case("category-one", {"objective": "regression", **CATEGORIES, "max_cat_to_onehot": 99}),
    Case("deep", {"objective": "regression", "num_leaves": 40, "min_data_in_leaf": 1}, rounds=2),
    Case("single-leaf", {"objective": "regression", "min_data_in_leaf": 1000}),
    Case("no-trees", {"objective": "regression"}, rounds=0),
    Case("linear", {"objective": "regression", **LINEAR}, since=(3, 2)),
    Case("linear-complete", {"objective": "regression", **LINEAR}, complete=True, plain=True),
    Case(
        "linear-classes",
        {"objective": "multiclass", "num_class": 3, **LINEAR},
        labels="classes 3",
        plain=True,
    ),
    Case(
        "linear-categories",
        {"objective": "binary", **CATEGORIES, **LINEAR},
        labels="classes 2",
        plain=True,
    ),
    Case("linear-forest", {"objective": "regression", **FOREST, **LINEAR}, plain=True),
    Case(
        "linear-single-leaf",
        {"objective": "regression", "min_data_in_leaf": 1000, **LINEAR},
        plain=True,
    ),
    *(
        Case(
            f"doubles{name}", {"num_leaves": 31, **parameters}, 6, labels, plain=True, doubles=True
        )
        for name, parameters, labels in [
            ("", {"objective": "regression"}, "numbers"),
            ("-zero", {"objective": "regression", "zero_as_missing": "true"}, "numbers"),
            ("-categories", {"objective": "binary", **CATEGORIES}, "classes 2"),
            ("-classes", {"objective": "multiclass", "num_class": 3}, "classes 3"),
            ("-linear", {"objective": "regression", "num_leaves": 6, **LINEAR}, "numbers"),
        ]
    ),
]


def main() -> None:
    library, version, directory = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    library = Library(library, version)
    for case in CASES:
        if library.version >= case.since and (not case.plain or library.version >= (4,)):
            fixture(library, case, directory)


def fixture(library: Library, case: Case, directory: Path) -> None:
    parameters = {**COMMON, **case.parameters}
    draw = np.random.default_rng(1)
    rows = features(case, TRAINING, draw)
    names = NAMES if case.names else None
    dataset = Dataset(library, rows, labels(case.labels, rows, draw), parameters, names)
    path = directory / f"{case.name}.model"
    Booster.train(library, dataset, parameters, case.rounds).save(path)
    if case.name != "regression":
        shorten(path)
    # Loaded anew, because training leaves settings behind that the file may not have.
    booster = Booster.load(library, path)
    write(path.with_suffix(".txt"), expected(booster, case, scoring(case, path), library.version))


def shorten(path: Path) -> None:
    """Removes what describes the training, behind the trees: half of a small file."""
    trees, end, _ = path.read_text().partition("end of trees\n")
    path.write_text(trees + end)


def expected(booster: Booster, case: Case, rows: np.ndarray, version: tuple[int, ...]):
    if case.doubles:
        yield "doubles", rows
        for kind in ("margin", "leaf"):
            yield f"doubles-{kind}", booster.predict(rows, kind)
        return
    yield "rows", rows
    if case.rounds == 0:
        return
    for kind in ("value", "margin", "leaf"):
        yield kind, booster.predict(rows, kind)
    if case.rounds > 1:
        yield "first", booster.predict(rows, "value", (0, 1))
        if version >= (3,):
            yield "others", booster.predict(rows, "value", (1, case.rounds))


def features(case: Case, count: int, draw: np.random.Generator) -> np.ndarray:
    rows = draw.normal(size=(count, FEATURES))
    # Numbers that are often zero.
    rows[:, 1] = np.where(draw.random(count) < 0.4, 0, rows[:, 1])
    rows[:, 3] = draw.integers(0, 40, count)
    rows[:, 4] = draw.integers(0, 4, count)
    if case.doubles:
        rows[:, 0] = START + draw.uniform(0, 3600, count)
        rows[:, 2] = np.where(draw.random(count) < 0.3, 0, rows[:, 2] * 1e-9)
    if not case.complete:
        rows[draw.random(rows.shape) < 0.15] = np.nan
    return rows


def scoring(case: Case, model: Path) -> np.ndarray:
    """Rows to score: with missing values, numbers around zero and around the model's thresholds,
    and values that no row of the training has.
    """
    rows = features(case, ROWS + NEAREST, np.random.default_rng(2))
    if case.doubles:
        return beside_thresholds(rows, model)
    rows = rows.astype(np.float32)
    tiny = np.float32(1e-35)
    rows[0] = np.nan
    rows[1] = 0
    rows[2] = -0.0
    rows[3], rows[4] = 1e30, -1e30
    rows[5], rows[6] = tiny, -tiny
    rows[7], rows[8] = np.nextafter(tiny, np.float32(1)), -np.nextafter(tiny, np.float32(1))
    rows[9, 3], rows[10, 3], rows[11, 3] = -0.5, -1, 7.9
    rows[12], rows[13] = np.inf, -np.inf
    rows[9, 4], rows[10, 4], rows[11, 4] = 1e6, 16777216, 3e9
    for row, near in zip(rows[ROWS:], thresholds(model), strict=False):
        row[near[0]] = near[1]
    return rows


def beside_thresholds(rows: np.ndarray, model: Path) -> np.ndarray:
    """Rows of f64, among them the thresholds of numerical splits and the numbers beside them."""
    found = splits(model)
    near = rows[np.arange(60) % len(rows)]
    for at, row in enumerate(near):
        feature, threshold = found[at * len(found) // len(near)]
        row[feature] = np.nextafter(threshold, [-np.inf, threshold, np.inf][at % 3])
    tiny = float(np.float32(1e-35))
    rows[0], rows[1], rows[2] = np.nan, 0, -0.0
    rows[3], rows[4], rows[5], rows[6] = tiny, -tiny, np.nextafter(tiny, 1), -np.nextafter(tiny, 1)
    rows[7], rows[8], rows[9], rows[10] = 1e300, -1e300, np.inf, -np.inf
    rows[11, 3:], rows[12, 3:], rows[13, 3:] = -1e-9, -1, 16777217
    return np.concatenate([rows, near])


def splits(model: Path) -> list[tuple[int, float]]:
    """The features and thresholds of numerical splits."""
    found = []
    lines = [line.partition("=") for line in model.read_text().splitlines()]
    values = {}
    for key, _, value in lines:
        values[key] = value.split()
        if key == "decision_type":
            nodes = zip(values["split_feature"], values["threshold"], values[key], strict=True)
            found += [(int(f), float(t)) for f, t, kind in nodes if not int(kind) & 1]
    return found


def thresholds(model: Path):
    """The numbers nearest to some thresholds of numerical splits, each with its feature."""
    found = splits(model)
    step = max(1, 2 * len(found) // NEAREST)
    for feature, threshold in found[::step]:
        nearest = np.float32(threshold)
        yield feature, nearest
        other = np.inf if nearest <= threshold else -np.inf
        yield feature, np.nextafter(nearest, np.float32(other))


def labels(kind: str, rows: np.ndarray, draw: np.random.Generator) -> dict[str, np.ndarray]:
    known = np.nan_to_num(rows)
    score = known[:, 0] - 0.5 * known[:, 1] + np.sin(3 * known[:, 2]) + np.sin(known[:, 3])
    score = (score + (known[:, 4] == 2) + 0.1 * draw.normal(size=len(rows))).astype(np.float32)
    kind, _, classes = kind.partition(" ")
    if kind == "positive":
        return {"label": np.exp(score / 2).astype(np.float32)}
    if kind == "classes":
        edges = np.quantile(score, np.linspace(0, 1, int(classes) + 1)[1:-1])
        return {"label": np.digitize(score, edges).astype(np.float32)}
    if kind == "ranks":
        relevant = np.digitize(score, np.quantile(score, [0.5, 0.8])).astype(np.float32)
        return {"label": relevant, "group": np.full(len(rows) // 10, 10, np.int32)}
    return {"label": score}


if __name__ == "__main__":
    main()
