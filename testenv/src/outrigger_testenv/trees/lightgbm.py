"""LightGBM through its C interface, so that any version works with any version of Python."""

import ctypes
from pathlib import Path

import numpy as np

ROW_MAJOR = 1
FLOAT32, FLOAT64, INT32 = 0, 1, 2
KINDS = {"value": 0, "margin": 1, "leaf": 2}


class Library:
    """A lib_lightgbm.so."""

    def __init__(self, path: Path, version: str):
        self.version = tuple(int(part) for part in version.split("."))
        self._library = ctypes.CDLL(str(path))
        self._library.LGBM_GetLastError.restype = ctypes.c_char_p

    def call(self, function: str, *arguments) -> None:
        """Calls a function of the C interface. Raises RuntimeError if it fails."""
        if getattr(self._library, function)(*arguments) != 0:
            raise RuntimeError(self._library.LGBM_GetLastError().decode())


class Dataset:
    """Rows to train with, and their labels. Their numbers are f64."""

    def __init__(
        self,
        library: Library,
        rows: np.ndarray,
        fields: dict[str, np.ndarray],
        parameters: dict[str, object],
        names: list[str] | None = None,
    ):
        self._library = library
        self.handle = ctypes.c_void_p()
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        library.call(
            "LGBM_DatasetCreateFromMat",
            *matrix(rows),
            text(parameters),
            None,
            ctypes.byref(self.handle),
        )
        for field, values in fields.items():
            kind = INT32 if values.dtype == np.int32 else FLOAT32
            data, count = values.ctypes.data_as(ctypes.c_void_p), ctypes.c_int(len(values))
            library.call(
                "LGBM_DatasetSetField", self.handle, field.encode(), data, count, ctypes.c_int(kind)
            )
        if names:
            array = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
            library.call("LGBM_DatasetSetFeatureNames", self.handle, array, len(names))

    def __del__(self):
        self._library.call("LGBM_DatasetFree", self.handle)


class Booster:
    """A model."""

    def __init__(self, library: Library):
        self._library = library
        self._handle = ctypes.c_void_p()

    def __del__(self):
        self._library.call("LGBM_BoosterFree", self._handle)

    @classmethod
    def train(
        cls, library: Library, dataset: Dataset, parameters: dict[str, object], rounds: int
    ) -> "Booster":
        booster = cls(library)
        handle = ctypes.byref(booster._handle)
        library.call("LGBM_BoosterCreate", dataset.handle, text(parameters), handle)
        finished = ctypes.c_int()
        for _ in range(rounds):
            library.call("LGBM_BoosterUpdateOneIter", booster._handle, ctypes.byref(finished))
        return booster

    @classmethod
    def load(cls, library: Library, path: Path) -> "Booster":
        booster, iterations = cls(library), ctypes.c_int()
        out = (ctypes.byref(iterations), ctypes.byref(booster._handle))
        library.call("LGBM_BoosterCreateFromModelfile", str(path).encode(), *out)
        return booster

    def save(self, path: Path) -> None:
        # The kind of importance is an argument since 3.0.
        importance = [ctypes.c_int(0)] if self._library.version >= (3,) else []
        first, count = ctypes.c_int(0), ctypes.c_int(-1)
        arguments = [first, count, *importance, str(path).encode()]
        self._library.call("LGBM_BoosterSaveModel", self._handle, *arguments)

    def predict(self, rows: np.ndarray, kind: str, iterations: tuple[int, int] | None = None):
        """The `kind` of result, `value`, `margin` or `leaf`: a row for each of `rows`, which are
        f32 or f64. Versions before 3.0 cannot leave out the first iterations.
        """
        rows = np.ascontiguousarray(rows)
        first, end = iterations or (0, -1)
        count = ctypes.c_int(end - first if iterations else -1)
        out = np.zeros(len(rows) * 4096)
        length = ctypes.c_int64()
        start = [ctypes.c_int(first)] if self._library.version >= (3,) else []
        self._library.call(
            "LGBM_BoosterPredictForMat",
            self._handle,
            *matrix(rows),
            ctypes.c_int(KINDS[kind]),
            *start,
            count,
            b"num_threads=1",
            ctypes.byref(length),
            out.ctypes.data_as(ctypes.c_void_p),
        )
        return out[: length.value].reshape(len(rows), -1)


def matrix(rows: np.ndarray) -> tuple:
    """Rows as the C interface takes them. They must outlive the call."""
    kind = FLOAT32 if rows.dtype == np.float32 else FLOAT64
    sizes = (ctypes.c_int32(rows.shape[0]), ctypes.c_int32(rows.shape[1]))
    return (
        rows.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int(kind),
        *sizes,
        ctypes.c_int(ROW_MAJOR),
    )


def text(parameters: dict[str, object]) -> bytes:
    return " ".join(f"{name}={value}" for name, value in parameters.items()).encode()
