"""Small models that differ in everything that a reader or scorer must know."""

from dataclasses import dataclass, field

import numpy as np

FEATURES = 5
TRAINING = 160
ROWS = 16


@dataclass(frozen=True)
class Case:
    """A model to train, and the versions of XGBoost that can."""

    name: str
    parameters: dict[str, object]
    rounds: int = 3
    since: tuple[int, int] = (0, 90)
    """The first version of XGBoost (major, minor) that has it."""
    labels: str = "numbers"
    plain: bool = False
    """True if only its objective is special, so that two versions are enough."""
    binary: bool = True
    """True if the old binary format can hold it."""
    categorical: bool = False
    names: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


CASES = [
    Case("squared", {"objective": "reg:squarederror"}, names=True),
    Case(
        "squared-log",
        {"objective": "reg:squaredlogerror"},
        since=(1, 5),
        labels="positive",
        plain=True,
    ),
    Case("pseudo-huber", {"objective": "reg:pseudohubererror"}, since=(1, 5), plain=True),
    Case("absolute", {"objective": "reg:absoluteerror"}, since=(1, 7), plain=True),
    Case(
        "logistic",
        {"objective": "binary:logistic", "base_score": 0.3},
        labels="classes 2",
        attributes={"best_iteration": "1", "note": 'a "quoted" text: ä\n'},
    ),
    Case("logistic-regression", {"objective": "reg:logistic"}, labels="classes 2", plain=True),
    Case(
        "logit-raw",
        {"objective": "binary:logitraw", "base_score": 0.3},
        labels="classes 2",
        plain=True,
    ),
    Case("hinge", {"objective": "binary:hinge"}, labels="classes 2", plain=True),
    Case("poisson", {"objective": "count:poisson"}, labels="positive", plain=True),
    Case("gamma", {"objective": "reg:gamma"}, labels="positive", plain=True),
    Case("tweedie", {"objective": "reg:tweedie"}, labels="positive", plain=True),
    Case("cox", {"objective": "survival:cox"}, labels="positive", plain=True),
    Case("aft", {"objective": "survival:aft"}, since=(1, 5), labels="bounds", plain=True),
    Case("pairwise", {"objective": "rank:pairwise"}, labels="classes 2", plain=True),
    Case("softmax", {"objective": "multi:softmax", "num_class": 3}, labels="classes 3"),
    Case(
        "softprob-parallel",
        {
            "objective": "multi:softprob",
            "num_class": 3,
            "num_parallel_tree": 2,
            "subsample": 0.7,
            "base_score": 0.25,
        },
        rounds=2,
        labels="classes 3",
    ),
    Case(
        "dart",
        {
            "booster": "dart",
            "objective": "binary:logistic",
            "base_score": 0.3,
            "rate_drop": 0.5,
            "one_drop": 1,
        },
        rounds=5,
        labels="classes 2",
    ),
    Case(
        "dart-classes",
        {"booster": "dart", "objective": "multi:softprob", "num_class": 3, "one_drop": 1},
        labels="classes 3",
    ),
    Case(
        "lossguide",
        {
            "objective": "reg:squarederror",
            "tree_method": "hist",
            "grow_policy": "lossguide",
            "max_depth": 0,
            "max_leaves": 24,
            "min_child_weight": 0,
        },
    ),
    Case("pruned", {"objective": "reg:squarederror", "max_depth": 4, "gamma": 2}),
    Case("single-leaf", {"objective": "reg:squarederror", "max_depth": 3, "gamma": 1e9}),
    Case("no-trees", {"objective": "reg:squarederror", "base_score": 0.25}, rounds=0),
    Case(
        "categorical",
        {"objective": "binary:logistic", "tree_method": "hist", "max_cat_to_onehot": 1},
        labels="classes 2",
        since=(1, 7),
        binary=False,
        categorical=True,
    ),
    Case(
        "categorical-one",
        {"objective": "reg:squarederror", "tree_method": "hist", "max_cat_to_onehot": 99},
        since=(1, 7),
        binary=False,
        categorical=True,
    ),
    Case(
        "targets",
        {"objective": "reg:squarederror", "tree_method": "hist"},
        labels="targets",
        since=(1, 7),
        binary=False,
    ),
    Case(
        "vector-leaves",
        {
            "objective": "reg:squarederror",
            "tree_method": "hist",
            "multi_strategy": "multi_output_tree",
        },
        labels="targets",
        since=(2, 1),
        binary=False,
    ),
    Case(
        "vector-leaves-classes",
        {
            "objective": "multi:softprob",
            "num_class": 3,
            "tree_method": "hist",
            "multi_strategy": "multi_output_tree",
        },
        labels="classes 3",
        since=(2, 1),
        binary=False,
    ),
    Case(
        "quantiles",
        {
            "objective": "reg:quantileerror",
            "tree_method": "hist",
            "quantile_alpha": "[0.2,0.5,0.8]",
        },
        since=(2, 1),
        binary=False,
    ),
    Case(
        "expectiles",
        {
            "objective": "reg:expectileerror",
            "tree_method": "hist",
            "expectile_alpha": "[0.2,0.5,0.8]",
        },
        since=(3, 4),
        binary=False,
    ),
]


def training(case: Case) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Rows to train with, and their labels."""
    draw = np.random.default_rng(1)
    rows = features(case, TRAINING, draw)
    known = np.nan_to_num(rows)
    score = known[:, 0] - 0.5 * known[:, 1] + np.sin(3 * known[:, 2]) + (known[:, 4] == 2)
    score = (score + 0.1 * draw.normal(size=TRAINING)).astype(np.float32)
    return rows, _labels(case.labels, score)


def scoring(case: Case) -> np.ndarray:
    """Rows to score: with missing values, zeros, and values that no row of the training has."""
    draw = np.random.default_rng(2)
    rows = features(case, ROWS, draw)
    rows[0] = np.nan
    rows[1] = 0
    rows[2] = -0.0
    rows[3, :4] = 1e30
    rows[4, :4] = -1e30
    rows[5, 3] = -1
    rows[6, 3] = 7.9
    rows[7, 3] = 1e6
    rows[8, 3] = 16777216
    return rows


def entries() -> list[list[tuple[int, float]]]:
    """Sparse rows in any order of ids, some of which are there more than once or are no columns,
    with zeros and missing values among the weights.
    """
    draw = np.random.default_rng(4)
    weights = [0.0, -0.0, np.nan, np.nan, 3.0, 1e30, -1e30]

    def entry() -> tuple[int, float]:
        id = draw.choice([*range(FEATURES), *range(FEATURES), FEATURES, FEATURES + 1, 2000, 2**31])
        drawn = round(draw.normal(), 2) if draw.random() < 0.6 else draw.choice(weights)
        return int(id), float(np.float32(drawn))

    drawn = [[entry() for _ in range(length % 13)] for length in range(26)]
    chosen = [
        [(0, 1.0), (0, np.nan)],
        [(0, np.nan), (0, 1.0)],
        [(1, 0.5), (1, -0.5)],
        [(1, -0.5), (0, 2.0), (1, 0.5)],
        [(2, 1.0), (2, 0.0)],
        [(FEATURES, 1.0), (2000, 1.0)],
    ]
    # XGBoost refuses more entries than columns on average.
    return [*chosen, *drawn, [entry() for _ in range(40)], *[[]] * 8]


def features(case: Case, count: int, draw: np.random.Generator) -> np.ndarray:
    rows = draw.normal(size=(count, FEATURES)).round(2)
    rows[:, 3] = draw.integers(0, 40 if case.categorical else 8, count)
    rows[:, 4] = draw.integers(0, 4, count)
    rows[draw.random(rows.shape) < 0.15] = np.nan
    return rows.astype(np.float32)


def types(case: Case) -> list[str] | None:
    return ["float", "float", "float", "c", "c"] if case.categorical else None


def _labels(kind: str, score: np.ndarray) -> dict[str, np.ndarray]:
    kind, _, classes = kind.partition(" ")
    if kind == "classes":
        edges = np.quantile(score, np.linspace(0, 1, int(classes) + 1)[1:-1])
        return {"label": np.digitize(score, edges).astype(np.float32)}
    if kind == "positive":
        return {"label": np.exp(score / 2).astype(np.float32)}
    if kind == "bounds":
        lower = np.exp(score / 2).astype(np.float32)
        return {"label_lower_bound": lower, "label_upper_bound": lower * np.float32(1.5)}
    if kind == "targets":
        return {"label": np.ascontiguousarray(np.stack([score, -score * 2 + 1, score**2], axis=1))}
    return {"label": score}
