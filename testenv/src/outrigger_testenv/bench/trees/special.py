"""Trains models that differ from A to D in more than their size, on generated rows with missing
values and categories.

    python -m outrigger_testenv.bench.trees.special LIBRARY DIRECTORY

XGBoost's library is loaded into this process, so each version needs a process of its own.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from outrigger_testenv.bench.trees import cache
from outrigger_testenv.trees.library import Booster, Library, Matrix

ROWS = 1000
"""Rows to score."""

_TRAINING = 4000
_CLASSES = 4
# Columns of numbers, and the numbers of categories of the columns behind them.
_NUMBERS, _CATEGORIES = 12, (3, 12, 60)


@dataclass(frozen=True)
class Special:
    """A model, and the iterations of its training."""

    name: str
    parameters: Mapping[str, object]
    rounds: int
    has_categories: bool = False

    @property
    def is_dart(self) -> bool:
        """True if its trees have weights of their own."""
        return self.parameters.get("booster") == "dart"


# A base score of its own, which XGBoost does not estimate, has a margin that is not zero.
_BINARY = {"objective": "binary:logistic", "base_score": 0.3}
_SOFTPROB = {"objective": "multi:softprob", "num_class": _CLASSES}
_DROPPED = {"booster": "dart", "rate_drop": 0.1, "one_drop": 1}

SPECIAL = (
    Special("classes", _SOFTPROB, 60),
    Special("dart", {**_BINARY, **_DROPPED}, 80),
    Special("dart-classes", {**_SOFTPROB, **_DROPPED}, 20),
    Special("categories", {**_BINARY, "max_cat_to_onehot": 5}, 100, has_categories=True),
    Special("parallel", {**_SOFTPROB, "num_parallel_tree": 4, "subsample": 0.7}, 15),
)


def train(directory: Path) -> list[Path]:
    """Trains the models into `directory`, which takes seconds: `NAME.json`, and `NAME.rows` with
    dense rows as f32. Returns their paths without endings. Raises CalledProcessError.
    """
    command = [sys.executable, "-m", "outrigger_testenv.bench.trees.special"]
    subprocess.run([*command, cache.xgboost(cache.BEFORE_LAYOUT), directory], check=True)
    return [directory / each.name for each in SPECIAL]


def write(library: Library, special: Special, directory: Path) -> None:
    """Trains a model and writes its files."""
    draw = np.random.default_rng(26)
    rows, scored = _rows(draw, _TRAINING), _rows(draw, ROWS)
    types = ["float"] * _NUMBERS + ["c" if special.has_categories else "float"] * len(_CATEGORIES)
    matrix = Matrix(library, rows, {"label": _labels(rows, special, draw)}, types)
    # Several threads wait for each other for longer than one takes.
    common = {"tree_method": "hist", "nthread": 1, "seed": 1, "verbosity": 0}
    parameters = {**common, "max_depth": 6, "eta": 0.2, **special.parameters}
    booster = Booster(library, parameters, matrix)
    booster.train(matrix, special.rounds)
    booster.save(directory / f"{special.name}.json")
    (directory / f"{special.name}.rows").write_bytes(scored.tobytes())


def _rows(draw: np.random.Generator, count: int) -> np.ndarray:
    """Rows of which some values are missing, so that the trees learn directions for them."""
    numbers = draw.normal(size=(count, _NUMBERS))
    categories = [draw.integers(0, most, count) for most in _CATEGORIES]
    rows = np.column_stack([numbers, *categories])
    rows[draw.random(rows.shape) < 0.05] = np.nan
    return rows.astype(np.float32)


def _labels(rows: np.ndarray, special: Special, draw: np.random.Generator) -> np.ndarray:
    """Classes by a function of numbers and categories, with noise."""
    known = np.nan_to_num(rows)
    score = known[:, 0] - known[:, 1] * known[:, 2] + np.sin(3 * known[:, 3])
    # Neighbouring categories have little in common.
    score += np.sin(37 * known[:, _NUMBERS:]).sum(axis=1)
    score += 0.3 * draw.normal(size=len(rows))
    classes = special.parameters.get("num_class", 2)
    edges = np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1])
    return np.digitize(score, edges).astype(np.float32)


def main() -> None:
    """Trains the models."""
    library, directory = sys.argv[1:]
    for special in SPECIAL:
        write(Library(Path(library)), special, Path(directory))


if __name__ == "__main__":
    main()
