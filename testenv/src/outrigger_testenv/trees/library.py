"""XGBoost through its C interface, so that any version works with any version of Python."""

import ctypes
import json
from pathlib import Path

import numpy as np

MISSING = float("nan")

ALL = 1 << 20
"""A limit of trees that no model reaches."""


class Library:
    """A libxgboost.so."""

    def __init__(self, path: Path):
        self._library = ctypes.CDLL(str(path))
        self._library.XGBGetLastError.restype = ctypes.c_char_p

    def call(self, function: str, *arguments) -> None:
        """Calls a function of the C interface. Raises RuntimeError if it fails."""
        if getattr(self._library, function)(*arguments) != 0:
            raise RuntimeError(self._library.XGBGetLastError().decode())


class Matrix:
    """Rows, with labels and what else training needs."""

    def __init__(
        self,
        library: Library,
        rows: np.ndarray,
        info: dict[str, np.ndarray] | None = None,
        types: list[str] | None = None,
    ):
        self._library = library
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        self.handle = ctypes.c_void_p()
        library.call(
            "XGDMatrixCreateFromMat",
            rows.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_uint64(rows.shape[0]),
            ctypes.c_uint64(rows.shape[1]),
            ctypes.c_float(MISSING),
            ctypes.byref(self.handle),
        )
        for field, values in (info or {}).items():
            self._set(field, values)
        if types:
            library.call("XGDMatrixSetStrFeatureInfo", self.handle, b"feature_type", *texts(types))

    def _set(self, field: str, values: np.ndarray) -> None:
        if values.ndim > 1:
            interface = array_interface(values)
            self._library.call(
                "XGDMatrixSetInfoFromInterface", self.handle, field.encode(), interface
            )
            return
        # Versions of the library differ in the interface of one dimension, but not in this.
        data, count = values.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(len(values))
        self._library.call("XGDMatrixSetFloatInfo", self.handle, field.encode(), data, count)

    def __del__(self):
        self._library.call("XGDMatrixFree", self.handle)


class SparseMatrix(Matrix):
    """Rows of ids with weights, as XGBoost Serving gives them to XGBoost: in any order, with ids
    more than once, and with ids that are no columns. For XGBoost 1.5.
    """

    def __init__(self, library: Library, rows: list[list[tuple[int, float]]], columns: int):
        self._library = library
        self.handle = ctypes.c_void_p()
        entries = [entry for row in rows for entry in row]
        offsets = np.cumsum([0, *(len(row) for row in rows)]).astype(np.uint64)
        ids = np.array([id for id, _ in entries], np.uint32)
        weights = np.array([weight for _, weight in entries], np.float32)
        library.call(
            "XGDMatrixCreateFromCSREx",
            *(each.ctypes.data_as(ctypes.c_void_p) for each in (offsets, ids, weights)),
            *(ctypes.c_size_t(size) for size in (len(offsets), len(entries), columns)),
            ctypes.byref(self.handle),
        )


class Booster:
    """A model."""

    def __init__(self, library: Library, parameters: dict[str, object], matrix: Matrix):
        self._library = library
        self._handle = ctypes.c_void_p()
        matrices = (ctypes.c_void_p * 1)(matrix.handle)
        library.call("XGBoosterCreate", matrices, ctypes.c_uint64(1), ctypes.byref(self._handle))
        for name, value in parameters.items():
            library.call("XGBoosterSetParam", self._handle, name.encode(), str(value).encode())

    def __del__(self):
        self._library.call("XGBoosterFree", self._handle)

    def train(self, matrix: Matrix, rounds: int) -> None:
        for at in range(rounds):
            self._library.call("XGBoosterUpdateOneIter", self._handle, at, matrix.handle)

    def set_attribute(self, name: str, value: str) -> None:
        self._library.call("XGBoosterSetAttr", self._handle, name.encode(), value.encode())

    def set_names(self, names: list[str]) -> None:
        """Names the features."""
        self._library.call(
            "XGBoosterSetStrFeatureInfo", self._handle, b"feature_name", *texts(names)
        )

    def save(self, path: Path) -> None:
        """Saves the model, in the format that the file's name says."""
        self._library.call("XGBoosterSaveModel", self._handle, str(path).encode())

    def load(self, path: Path) -> None:
        self._library.call("XGBoosterLoadModel", self._handle, str(path).encode())

    def predict(self, matrix: Matrix, kind: str, iterations: tuple[int, int] = (0, 0)):
        """The `kind` of result, `value`, `margin`, `contributions` or `leaf`: a row for each row of
        the matrix.
        """
        config = {
            "type": {"value": 0, "margin": 1, "contributions": 2, "leaf": 6}[kind],
            "training": False,
            "iteration_begin": iterations[0],
            "iteration_end": iterations[1],
            # The library does not name the dimensions of leaves for all models.
            "strict_shape": kind != "leaf",
        }
        return self._predict("XGBoosterPredictFromDMatrix", matrix.handle, json_bytes(config))

    def predict_in_place(self, rows: np.ndarray, kind: str):
        """Results for rows that become no matrix, and so may be infinite."""
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        config = {
            "type": {"value": 0, "margin": 1}[kind],
            "iteration_begin": 0,
            "iteration_end": 0,
            "strict_shape": True,
            "missing": MISSING,
            "cache_id": 0,
        }
        return self._predict(
            "XGBoosterPredictFromDense", array_interface(rows), json_bytes(config), None
        )

    def _predict(self, function: str, *arguments):
        shape = ctypes.POINTER(ctypes.c_uint64)()
        dimensions = ctypes.c_uint64()
        result = ctypes.POINTER(ctypes.c_float)()
        out = (ctypes.byref(shape), ctypes.byref(dimensions), ctypes.byref(result))
        self._library.call(function, self._handle, *arguments, *out)
        sizes = [shape[at] for at in range(dimensions.value)]
        values = np.ctypeslib.as_array(result, shape=(int(np.prod(sizes)),)).copy()
        return values.reshape(sizes[0], -1)


class EarlyBooster(Booster):
    """A model in XGBoost before 1.4, whose predictions have no shape, and no first iteration."""

    def __init__(
        self,
        library: Library,
        parameters: dict[str, object],
        matrix: Matrix,
        version: tuple[int, int],
    ):
        super().__init__(library, parameters, matrix)
        # Before 1.0 no argument says that the prediction is not one of the training.
        self._training = () if version < (1, 0) else (ctypes.c_int(0),)

    def predict(self, matrix: Matrix, kind: str, iterations: tuple[int, int] = (0, 0)):
        """As that of later versions, for iterations from the first one on with one tree for each
        output.
        """
        if iterations[0] != 0:
            raise ValueError(f"the first iteration is {iterations[0]}, not 0")
        # Before 1.0 dart drops trees at random unless there is a limit.
        limit = iterations[1] or ALL
        mask = {"value": 0, "margin": 1, "leaf": 2, "contributions": 4}[kind]
        rows, length = ctypes.c_uint64(), ctypes.c_uint64()
        result = ctypes.POINTER(ctypes.c_float)()
        self._library.call("XGDMatrixNumRow", matrix.handle, ctypes.byref(rows))
        arguments = (ctypes.c_int(mask), ctypes.c_uint(limit), *self._training)
        out = (ctypes.byref(length), ctypes.byref(result))
        self._library.call("XGBoosterPredict", self._handle, matrix.handle, *arguments, *out)
        values = np.ctypeslib.as_array(result, shape=(length.value,)).copy()
        return values.reshape(rows.value, -1)


def texts(values: list[str]):
    """Texts, and their number, as the C interface takes them."""
    array = (ctypes.c_char_p * len(values))(*(value.encode() for value in values))
    return array, ctypes.c_uint64(len(values))


def json_bytes(value) -> bytes:
    return json.dumps(value).encode()


def array_interface(values: np.ndarray) -> bytes:
    """The array as the C interface takes it. It must outlive the call."""
    interface = dict(values.__array_interface__)
    interface["data"] = list(interface["data"])
    interface["shape"] = list(interface["shape"])
    return json_bytes({key: each for key, each in interface.items() if each is not None})
