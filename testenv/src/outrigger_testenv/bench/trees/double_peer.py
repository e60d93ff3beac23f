"""Scores models of LightGBM with lleaves, or of CatBoost with itself, in the environment of both;
see `peers`.

    python -m outrigger_testenv.bench.trees.double_peer LIBRARY DIRECTORY MODEL...

Answers the questions that `peer` does.
"""

import ctypes
import sys
from pathlib import Path

import numpy as np

from outrigger_testenv.bench.trees.peer import MOST_COMPILED, Call, Timed, answer, rows_of

# Margins of a library agree within this with those of the library that trained the model.
_TOLERANCE = 1e-9


class Lleaves:
    """Models of LightGBM compiled by LLVM, called through the compiled function."""

    def __init__(self, model: Path, compiled: Path):
        import lleaves

        self._model = lleaves.Model(model_file=str(model.with_suffix(".txt")))
        kept, unfinished = (compiled / f"{model.name}{each}.o" for each in ("", ".unfinished"))
        if not kept.exists():
            self._model.compile(cache=unfinished, raw_score=True)
            unfinished.rename(kept)
            self._model = lleaves.Model(model_file=str(model.with_suffix(".txt")))
        self._model.compile(cache=kept, raw_score=True)

    def call(self, rows: np.ndarray) -> Call:
        """A call for these rows, as the f64 that the function takes."""
        rows, out = np.ascontiguousarray(rows, np.float64), np.zeros(len(rows))
        # `predict` of the module checks the rows, and allocates more.
        score = self._model._c_entry_func
        pointers = [each.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for each in (rows, out)]
        arguments = (*pointers, ctypes.c_int(0), ctypes.c_int(len(rows)))

        def run(rows: np.ndarray = rows) -> np.ndarray:
            score(*arguments)
            return out

        return run


class CatBoost:
    """CatBoost, whose C interface is not in its wheel, through its Python module."""

    def __init__(self, model: Path, compiled: Path):
        del compiled
        import catboost

        self._pool, self._model = catboost.Pool, catboost.CatBoost()
        self._model.load_model(str(model.with_suffix(".cbm")))

    def call(self, rows: np.ndarray) -> Call:
        """A call for these rows, which are made a pool beforehand."""
        pool, predict = self._pool(rows, thread_count=1), self._model.predict
        return lambda: predict(pool, "RawFormulaVal", thread_count=1)


LIBRARIES = {"lleaves": Lleaves, "catboost": CatBoost}


def _loaded(name: str, model: Path, compiled: Path) -> Timed:
    """A model in a library. Raises RuntimeError if its margins are not those of the library that
    trained it.
    """
    if name == "catboost":
        import catboost

        trained = catboost.CatBoost()
        trained.load_model(str(model.with_suffix(".cbm")))
        features = len(trained.feature_names_)
        return Timed(LIBRARIES[name](model, compiled), rows_of(model, features))
    import lightgbm

    trained = lightgbm.Booster(model_file=model.with_suffix(".txt"))
    rows = rows_of(model, trained.num_feature())
    leaves = sum(tree["num_leaves"] for tree in trained.dump_model()["tree_info"])
    # A tree has a split less than leaves.
    if 2 * leaves > MOST_COMPILED:
        return Timed(None, rows)
    timed = Timed(LIBRARIES[name](model, compiled), rows)
    for count in (1, 100):
        some = timed.batches(count)[0]
        expected = trained.predict(some, raw_score=True)
        worst = np.abs(timed.library.call(some)() - expected).max()
        if not worst <= _TOLERANCE:
            raise RuntimeError(f"margins differ by {worst} from LightGBM's")
    return timed


def main() -> None:
    """Loads the models, and answers questions about them."""
    name, compiled, *paths = sys.argv[1:]
    models = map(Path, paths)
    answer({each.name: _loaded(name, each, Path(compiled)) for each in models})


if __name__ == "__main__":
    main()
