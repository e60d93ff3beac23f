"""Trains models of LightGBM and CatBoost of the same shapes as XGBoost's, on the same rows.

    python -m outrigger_testenv.bench.trees.doubles LIBRARY DIRECTORY [NAME]

It runs in the environment of these libraries; see `peers`.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from outrigger_testenv.bench.trees import cache, peers
from outrigger_testenv.bench.trees.models import SHAPES, Shape, drawn


def write(train: Callable[[Shape, np.ndarray, np.ndarray, Path], None], shape: Shape, to: Path):
    """Trains a model, and writes its file and `.rows` with the rows to score."""
    training, labels, scored = drawn(shape)
    train(shape, training, labels, to)
    (to / f"{shape.name}.rows").write_bytes(scored.tobytes())


def lightgbm(shape: Shape, rows: np.ndarray, labels: np.ndarray, directory: Path) -> None:
    """Writes `NAME.txt`. The limits on leaves are those that XGBoost's models have."""
    import lightgbm

    parameters = {
        "objective": "binary",
        "max_depth": shape.depth,
        "num_leaves": 2**shape.depth,
        "learning_rate": shape.eta,
        "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": 1.0,
        "lambda_l2": 1.0,
        "boost_from_average": False,
        "force_col_wise": True,
        # Its threads wait for each other by spinning, which takes minutes on a busy machine.
        "num_threads": 1,
        "seed": 1,
        "verbosity": -1,
    }
    booster = lightgbm.train(parameters, lightgbm.Dataset(rows, labels), shape.trees)
    booster.save_model(directory / f"{shape.name}.txt")


def catboost(shape: Shape, rows: np.ndarray, labels: np.ndarray, directory: Path) -> None:
    """Writes `NAME.json`, and `NAME.cbm`, which CatBoost loads faster."""
    from catboost import CatBoost

    parameters = {
        "loss_function": "Logloss",
        "iterations": shape.trees,
        "depth": shape.depth,
        "learning_rate": shape.eta,
        "thread_count": os.cpu_count(),
        "random_seed": 1,
        "logging_level": "Silent",
        "allow_writing_files": False,
    }
    model = CatBoost(parameters).fit(rows, labels)
    model.save_model(str(directory / f"{shape.name}.json"), format="json")
    model.save_model(str(directory / f"{shape.name}.cbm"))


LIBRARIES = {"lightgbm": lightgbm, "catboost": catboost}


def models(library: str) -> list[Path]:
    """The models of a library without the endings of their files. They are trained on the first
    call, which takes minutes. Raises CalledProcessError, or Skipped if it cannot be installed.
    """

    def make(directory: Path) -> None:
        module = [peers.double_python(), "-m", "outrigger_testenv.bench.trees.doubles"]
        variables = {**os.environ, **peers.VARIABLES}
        subprocess.run([*module, library, directory], check=True, env=variables)

    directory = cache.made(library, make)
    return [directory / shape.name for shape in SHAPES]


def main() -> None:
    """Trains the models, or the one that is named."""
    library, directory, *names = sys.argv[1:]
    for shape in SHAPES:
        if not names or shape.name in names:
            write(LIBRARIES[library], shape, Path(directory))
            print(f"{library} {shape.name}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
