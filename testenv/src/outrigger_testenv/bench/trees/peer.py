"""Scores with one of the other libraries, in their environment; see `peers`.

    python -m outrigger_testenv.bench.trees.peer LIBRARY DIRECTORY MODEL...

Answers lines `time NAME ROWS` with the seconds of a call, or `null` for a model that the library
cannot load, and `margins NAME ROWS KIND` with the bits of f64, as the program for the other
libraries does. What takes long to convert or compile is kept in the directory. Each library is
called through its C interface if it has one, and its input is made before the time is taken.
"""

import ctypes
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

# The least time that is measured, seconds; that of the program for the other libraries.
_TIME = 0.025
# Margins of all libraries agree within this; none adds in the order of XGBoost.
_TOLERANCE = 1e-3
MOST_COMPILED = 300_000
"""The most nodes of a model that is compiled: a compiler takes many minutes for more."""

# Scores the rows that it was made for.
Call = Callable[[], np.ndarray]


class Daal4py:
    """oneDAL, whose C++ interface is not in its wheel, through its Python module."""

    def __init__(self, model: Path, compiled: Path):
        import daal4py.mb

        daal4py.daalinit(nthreads=1)
        kept = compiled / f"{model.name}.daal"
        if not kept.exists():
            from xgboost import Booster

            converted = daal4py.mb.convert_model(Booster(model_file=raw(model)))
            _write(kept, pickle.dumps(converted.daal_model_))
        self._model = pickle.loads(kept.read_bytes())
        self._algorithm = daal4py.gbt_regression_prediction

    def call(self, rows: np.ndarray) -> Call:
        """A call for these rows."""
        # It keeps its result, so it is for one number of rows.
        compute, model = self._algorithm(fptype="float").compute, self._model
        return lambda: compute(rows, model).prediction


class OnnxRuntime:
    """ONNX Runtime through its Python module, with inputs and outputs bound beforehand."""

    def __init__(self, model: Path, compiled: Path):
        import onnxruntime

        kept = compiled / f"{model.name}.onnx"
        if not kept.exists():
            _write(kept, _converted(model))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(kept), options, providers=["CPUExecutionProvider"]
        )

    def call(self, rows: np.ndarray) -> Call:
        """A call for these rows."""
        session, binding = self._session, self._session.io_binding()
        binding.bind_cpu_input(session.get_inputs()[0].name, rows)
        binding.bind_output(session.get_outputs()[0].name, "cpu")

        def run() -> np.ndarray:
            session.run_with_iobinding(binding)
            return binding

        return run

    @staticmethod
    def margins(binding: object) -> np.ndarray:
        """The margins of a call."""
        return binding.copy_outputs_to_cpu()[0]


def _converted(model: Path) -> bytes:
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    from xgboost import Booster

    booster = Booster(model_file=raw(model))
    types = [("rows", FloatTensorType([None, booster.num_features()]))]
    return convert_xgboost(booster, initial_types=types).SerializeToString()


class Treelite:
    """treelite's reference walker, through its C interface."""

    def __init__(self, model: Path, compiled: Path):
        del compiled
        from treelite.core import _LIB
        from treelite.gtil.gtil import GTILConfig

        self._library, self._config = _LIB, GTILConfig("raw", nthread=1)
        self._model = _treelite_model(model)

    def call(self, rows: np.ndarray) -> Call:
        """A call for these rows."""
        out = np.zeros(len(rows), np.float32)
        predict = self._library.TreeliteGTILPredict
        arguments = (
            self._model.handle,
            rows.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_char_p(b"float32"),
            ctypes.c_size_t(len(rows)),
            out.ctypes.data_as(ctypes.c_void_p),
            self._config.handle,
        )

        def run() -> np.ndarray:
            if predict(*arguments) != 0:
                raise RuntimeError("treelite failed")
            return out

        return run


class Tl2cgen:
    """Models compiled from C by gcc, called through tl2cgen's C interface."""

    def __init__(self, model: Path, compiled: Path):
        import tl2cgen
        from tl2cgen.libloader import _LIB

        kept = compiled / f"{model.name}.so"
        if not kept.exists():
            # In several units, without which the compiler takes minutes and gigabytes.
            unfinished = compiled / f"{model.name}.unfinished.so"
            tl2cgen.export_lib(
                _treelite_model(model),
                toolchain="gcc",
                libpath=unfinished,
                params={"parallel_comp": 64},
                nthread=os.cpu_count(),
            )
            unfinished.rename(kept)
        self._library = _LIB
        self._predictor = tl2cgen.Predictor(kept, nthread=1)
        self._compiled = ctypes.CDLL(str(kept))

    def call(self, rows: np.ndarray) -> Call:
        """A call for these rows; for a single one, of the compiled function without a matrix."""
        return self._batch(rows) if len(rows) > 1 else self._row(rows)

    def _row(self, row: np.ndarray) -> Call:
        out, predict = np.zeros(1, np.float32), self._compiled.predict
        # A value is a union of a float and an integer that is -1 if the value is missing.
        predict.restype = None
        pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (row, out)]
        arguments = (pointers[0], ctypes.c_int(1), pointers[1])

        def run(row: np.ndarray = row) -> np.ndarray:
            predict(*arguments)
            return out

        return run

    def _batch(self, rows: np.ndarray) -> Call:
        import tl2cgen

        matrix = tl2cgen.DMatrix(rows, dtype="float32")
        out = np.zeros(len(rows), np.float32)
        predict = self._library.TL2cgenPredictorPredictBatch
        arguments = (
            self._predictor.handle,
            matrix.handle,
            ctypes.c_int(0),
            ctypes.c_int(1),
            out.ctypes.data_as(ctypes.c_void_p),
        )

        def run(matrix=matrix) -> np.ndarray:
            if predict(*arguments) != 0:
                raise RuntimeError("tl2cgen failed")
            return out

        return run


def _treelite_model(model: Path):
    import treelite

    return treelite.frontend.load_xgboost_model(raw(model), format_choice="json")


LIBRARIES = {
    "daal4py": Daal4py,
    "onnxruntime": OnnxRuntime,
    "treelite": Treelite,
    "tl2cgen": Tl2cgen,
}


def raw(model: Path) -> str:
    """The file of the model whose values are margins."""
    return str(model.with_suffix(".raw.json"))


def _write(file: Path, content: bytes) -> None:
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    unfinished.rename(file)


class Timed:
    """A library with a model and rows for it; None if the library cannot load the model."""

    def __init__(self, library: object | None, rows: np.ndarray):
        self.library, self._rows = library, rows

    def seconds(self, count: int) -> float | None:
        """Seconds a call with this number of rows. Successive calls have different rows, as far as
        there are any.
        """
        if self.library is None:
            return None
        calls = [self.library.call(each) for each in self.batches(count)]
        calls[0]()
        began, done, block = time.perf_counter(), 0, 1
        while True:
            for _ in range(block):
                calls[done % len(calls)]()
                done += 1
            elapsed = time.perf_counter() - began
            if elapsed >= _TIME:
                return elapsed / done
            block = done

    def margins(self, count: int, kind: str) -> list[int]:
        """The bits of the margins, as f64, of all whole batches of rows of a kind."""
        rows = Timed(self.library, of_kind(kind, self._rows))
        margins = [np.ravel(self.library.call(each)()) for each in rows.batches(count)]
        return np.concatenate(margins).astype(np.float64).view(np.uint64).tolist()

    def batches(self, count: int) -> list[np.ndarray]:
        """All whole batches of this number of rows."""
        starts = range(0, len(self._rows) - count + 1, count)
        return [np.ascontiguousarray(self._rows[start : start + count]) for start in starts]


def of_kind(kind: str, rows: np.ndarray) -> np.ndarray:
    """The rows of a kind, made of dense ones as by the program for the other libraries; what is
    absent is missing.
    """
    # Multiples of the golden ratio spread evenly between 0 and 1.
    place = (np.arange(rows.size) * 0.618033988749895 % 1).reshape(rows.shape)
    if kind == "sparse":
        rows = np.where(place < 0.65, np.where(place < 0.55, np.nan, 0), rows)
    elif kind == "missing":
        rows = np.where(place < 0.1, np.nan, rows)
    return rows.astype(np.float32)


def answer(models: Mapping[str, Timed]) -> None:
    """Answers questions until the input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        what, model, count, *kind = line.split()
        timed = models[model]
        found = timed.margins(int(count), *kind) if what == "margins" else timed.seconds(int(count))
        print(json.dumps(found), flush=True)


def rows_of(model: Path, features: int) -> np.ndarray:
    """The rows to score."""
    return np.fromfile(model.with_suffix(".rows"), np.float32).reshape(-1, features)


def _loaded(library: type, model: Path, compiled: Path) -> Timed:
    """A model in a library. Raises RuntimeError if the margins are not XGBoost's."""
    content = json.loads(Path(raw(model)).read_text())["learner"]
    rows = rows_of(model, int(content["learner_model_param"]["num_feature"]))
    trees = content["gradient_booster"]["model"]["trees"]
    nodes = sum(int(tree["tree_param"]["num_nodes"]) for tree in trees)
    if library is Tl2cgen and nodes > MOST_COMPILED:
        return Timed(None, rows)
    timed = Timed(library(model, compiled), rows)
    _check(timed, raw(model))
    return timed


def _check(timed: Timed, file: str) -> None:
    from xgboost import Booster

    read = getattr(timed.library, "margins", lambda margins: margins)
    for count in (1, 100):
        rows = timed.batches(count)[0]
        result = read(timed.library.call(rows)())
        expected = Booster(model_file=file).inplace_predict(rows)
        worst = np.abs(np.ravel(result) - expected).max()
        if not worst <= _TOLERANCE:
            raise RuntimeError(f"margins differ by {worst} from XGBoost's")


def main() -> None:
    """Loads the models, and answers questions about them."""
    name, compiled, *paths = sys.argv[1:]
    models = map(Path, paths)
    answer({each.name: _loaded(LIBRARIES[name], each, Path(compiled)) for each in models})


if __name__ == "__main__":
    main()
