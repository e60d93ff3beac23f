"""Trains the models that are timed, on generated rows.

    python -m outrigger_testenv.bench.trees.models LIBRARY DIRECTORY [NAME]

XGBoost's library is loaded into this process, so each version needs a process of its own.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from outrigger_testenv.bench.trees import cache
from outrigger_testenv.trees.library import Booster, Library, Matrix

ROWS = 1000
"""Rows to score."""

_TRAINING = 20_000


@dataclass(frozen=True)
class Shape:
    """The size of a model, and the learning rate: more trees learn more slowly, so that the last
    ones still grow.
    """

    name: str
    trees: int
    depth: int
    features: int
    eta: float


SHAPES = (
    Shape("A", 100, 6, 30, 0.1),
    Shape("B", 500, 6, 100, 0.05),
    Shape("C", 500, 8, 100, 0.05),
    Shape("D", 1000, 10, 100, 0.02),
)


def models() -> list[Path]:
    """The models without the endings of their files: `.json` and `.ubj`, `.raw.json`, which is the
    same model without the objective's transformation, and `.rows` with dense rows as f32. They are
    trained on the first call, which takes minutes. Raises CalledProcessError.
    """
    directory = cache.made("models", _in_process)
    return [directory / shape.name for shape in SHAPES]


def _in_process(directory: Path) -> None:
    command = [sys.executable, "-m", "outrigger_testenv.bench.trees.models"]
    subprocess.run([*command, cache.xgboost(cache.BEFORE_LAYOUT), directory], check=True)


def write(library: Library, shape: Shape, directory: Path) -> None:
    """Trains a model and writes its files."""
    rows, labels, scored = drawn(shape)
    matrix = Matrix(library, rows, {"label": labels})
    parameters = {
        "objective": "binary:logistic",
        "tree_method": "hist",
        "max_depth": shape.depth,
        "eta": shape.eta,
        "min_child_weight": 1.0,
        "nthread": os.cpu_count(),
        "seed": 1,
        "verbosity": 0,
    }
    booster = Booster(library, parameters, matrix)
    booster.train(matrix, shape.trees)
    for ending in ("json", "ubj"):
        booster.save(directory / f"{shape.name}.{ending}")
    write_raw(directory / f"{shape.name}.json", directory / f"{shape.name}.raw.json")
    (directory / f"{shape.name}.rows").write_bytes(scored.tobytes())


def drawn(shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to train with, their labels, and rows to score."""
    draw = np.random.default_rng(26)
    rows = _rows(draw, _TRAINING, shape)
    return rows, _labels(rows, draw), _rows(draw, ROWS, shape)


def _rows(draw: np.random.Generator, count: int, shape: Shape) -> np.ndarray:
    return draw.normal(size=(count, shape.features)).astype(np.float32)


def write_raw(source: Path, target: Path) -> None:
    """Writes a model whose values are the margins of another one. Some libraries score that faster,
    or cannot score margins otherwise.
    """
    model = json.loads(source.read_text())
    learner = model["learner"]
    learner["objective"] = {
        "name": "reg:squarederror",
        "reg_loss_param": {"scale_pos_weight": "1"},
    }
    parameters = learner["learner_model_param"]
    base = float(parameters["base_score"])
    # XGBoost 3.0.5 takes 0.5 for a number with more digits than it writes itself.
    parameters["base_score"] = f"{math.log(base / (1 - base)):.8E}"
    target.write_text(json.dumps(model))


def _labels(rows: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Classes by a function with products and steps, and noise that no tree can learn."""
    weights = draw.normal(size=rows.shape[1]) / np.sqrt(rows.shape[1])
    score = rows @ weights + np.sin(2 * rows[:, 0]) * rows[:, 1]
    score += (rows[:, 2] > 0.5) * rows[:, 3]
    score += 0.5 * rows[:, 4] * rows[:, 5]
    return (draw.random(len(rows)) < 1 / (1 + np.exp(-score))).astype(np.float32)


def nodes(model: Path) -> int:
    """The nodes of all trees of a model file in JSON."""
    content = json.loads(model.read_text())
    trees = content["learner"]["gradient_booster"]["model"]["trees"]
    return sum(int(tree["tree_param"]["num_nodes"]) for tree in trees)


def main() -> None:
    """Trains the models, or the one that is named."""
    library, directory, *names = sys.argv[1:]
    for shape in SHAPES:
        if not names or shape.name in names:
            write(Library(Path(library)), shape, Path(directory))
            count = nodes(Path(directory) / f"{shape.name}.json")
            print(f"{shape.name}: {count} nodes", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
