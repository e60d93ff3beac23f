"""Writes a GBDT+FM model in the files of XGBoost Serving, and sparse rows for it.

    python -m outrigger_testenv.bench.trees.machine LIBRARY DIRECTORY

XGBoost's library is loaded into this process, so each version needs a process of its own.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from outrigger_testenv.bench.trees import cache
from outrigger_testenv.trees.library import Booster, Library, Matrix

TREES, DEPTH, COLUMNS, FACTORS = 110, 5, 563, 8
"""The model of XGBoost Serving's own tests has as many trees and columns."""

FEATURES = 30
"""Features of a row."""

# Rows to train with and to score.
_TRAINING, _SCORED = 20_000, 1000


def machine() -> Path:
    """The directory of the model: `deploy.model`, `deploy.fm` and `deploy.leaf_mapping`, and `ids`
    and `weights` with the u64 and f32 of all rows. Raises CalledProcessError.
    """

    def make(directory: Path) -> None:
        command = [sys.executable, "-m", "outrigger_testenv.bench.trees.machine"]
        subprocess.run([*command, cache.xgboost(cache.OLDEST), directory], check=True)

    return cache.made("machine", make)


def write(library: Library, directory: Path) -> None:
    """Trains the trees, draws a factorisation machine over their leaves, and writes both."""
    draw = np.random.default_rng(26)
    ids, weights = _sparse(draw, _TRAINING)
    dense = np.full((_TRAINING, COLUMNS), np.nan, np.float32)
    np.put_along_axis(dense, ids, weights, axis=1)
    score = np.nan_to_num(dense) @ draw.normal(size=COLUMNS) / np.sqrt(FEATURES)
    labels = (score + draw.normal(size=_TRAINING) > 0).astype(np.float32)
    matrix = Matrix(library, dense, {"label": labels})
    parameters = {
        "objective": "binary:logistic",
        "tree_method": "hist",
        "max_depth": DEPTH,
        "min_child_weight": 0,
        "verbosity": 0,
        "seed": 1,
    }
    booster = Booster(library, parameters, matrix)
    booster.train(matrix, TREES)
    booster.save(directory / "deploy.model")
    booster.save(directory / "trees.json")
    _write_machine(directory, list(leaves(directory / "trees.json")), draw)
    ids, weights = _sparse(draw, _SCORED)
    (directory / "ids").write_bytes(ids.astype(np.uint64).tobytes())
    (directory / "weights").write_bytes(weights.tobytes())


def _sparse(draw: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Different ids, ascending, and weights of each row."""
    order = draw.random((rows, COLUMNS)).argsort(axis=1)[:, :FEATURES]
    ids, weights = np.sort(order, axis=1), draw.normal(size=(rows, FEATURES))
    return ids, weights.astype(np.float32)


def leaves(model: Path) -> Iterator[Sequence[int]]:
    """The leaves of each tree, as nodes of it."""
    content = json.loads(model.read_text())
    for tree in content["learner"]["gradient_booster"]["model"]["trees"]:
        children = zip(tree["left_children"], tree["parents"], strict=True)
        # A node that was pruned has no parent, as the root.
        yield [
            node
            for node, (left, parent) in enumerate(children)
            if left == -1 and (node == 0 or parent != 2**31 - 1)
        ]


def _write_machine(
    directory: Path, of_trees: Sequence[Sequence[int]], draw: np.random.Generator
) -> None:
    """Writes the machine and the ids of leaves, which follow those of the columns."""
    following, mapping = COLUMNS, []
    for tree, nodes in enumerate(of_trees):
        pairs = (f"{node}:{following + at}" for at, node in enumerate(nodes))
        mapping.append(" ".join([str(tree), *pairs]))
        following += len(nodes)
    (directory / "deploy.leaf_mapping").write_text("\n".join(mapping) + "\n")
    numbers = draw.normal(scale=0.1, size=(following, 1 + FACTORS))
    lines = [f"{id} {' '.join(f'{value:.6g}' for value in row)}" for id, row in enumerate(numbers)]
    (directory / "deploy.fm").write_text("\n".join(["bias -1", *lines]) + "\n")


def main() -> None:
    """Writes the files."""
    library, directory = sys.argv[1:]
    write(Library(Path(library)), Path(directory))


if __name__ == "__main__":
    main()
