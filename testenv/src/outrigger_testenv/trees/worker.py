"""Writes the fixtures of one version of XGBoost.

A fixture is a model file and a text file beside it with rows and their results: after a line
`NAME ROWS COLUMNS` come as many lines of numbers, which are exact as f32. `entries` has a line for
each entry of a sparse row: the number of the row, the id and the weight.
"""

import shutil
import sys
from pathlib import Path

import numpy as np

from outrigger_testenv.trees.cases import CASES, FEATURES, Case, entries, scoring, training, types
from outrigger_testenv.trees.library import (
    Booster,
    EarlyBooster,
    Library,
    Matrix,
    SparseMatrix,
)

COMMON = {
    "max_depth": 3,
    "eta": 0.5,
    "nthread": 1,
    "seed": 3,
    "verbosity": 0,
    "tree_method": "exact",
}

PLAIN = ["0.90", "1.5.0", "3.4.1"]
"""The versions for models of which only the objective is special."""

EXPLAINING = ["0.90", "1.5.0", "3.0.5"]
"""The versions whose contributions are kept. They have none for leaves with vectors; 3.3 and later
versions compute them in another way.
"""

SPARSE = "1.5.0"
"""The version whose results for sparse rows are kept: that of XGBoost Serving."""


OTHER_SUMS = ["0.90", "1.0.2", "1.3.3"]
"""The versions that add the base score to the sum of the leaves, 1.3 only for dart, where later
ones begin with it. The tables of their own sums have the prefix `own-`; those without it are
XGBoost 1.5's for the same files.
"""

LINEAR = ["0.90", "1.5.0", "3.0.5"]
"""The versions whose linear models are kept, to be refused."""


def main() -> None:
    library, version, directory = Library(Path(sys.argv[1])), sys.argv[2], Path(sys.argv[3])
    for case in CASES:
        if number_of(version) >= case.since and (not case.plain or version in PLAIN):
            write(library, case, version, directory)
    if version in LINEAR:
        linear = {"booster": "gblinear", "objective": "reg:squarederror", "nthread": 1}
        rows, info = training(CASES[0])
        matrix = Matrix(library, rows, info)
        booster = booster_of(library, linear, matrix, version)
        booster.train(matrix, 1)
        for ending in endings(version, CASES[0]):
            save(booster, directory / f"linear.{ending}")


def number_of(version: str) -> tuple[int, int]:
    """Major and minor number."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def booster_of(
    library: Library, parameters: dict[str, object], matrix: Matrix, version: str
) -> Booster:
    if number_of(version) >= (1, 4):
        return Booster(library, parameters, matrix)
    return EarlyBooster(library, parameters, matrix, number_of(version))


def endings(version: str, case: Case) -> list[str]:
    """The formats in which the fixtures of a version are."""
    if version == "0.90":
        return ["bin"]
    if number_of(version) <= (1, 5):
        return ["bin"] if case.plain else ["json", "bin"]
    if version == "3.0.5":
        return ["bin"] if case.binary else ["ubj"]
    return ["json"] if version == "2.1.4" else ["ubj"]


def write(library: Library, case: Case, version: str, directory: Path) -> None:
    rows, info = training(case)
    matrix = Matrix(library, rows, info, types(case))
    booster = booster_of(library, {**COMMON, **case.parameters}, matrix, version)
    booster.train(matrix, case.rounds)
    if case.names and number_of(version) >= (1, 4):
        booster.set_names(["age", "länge", 'a "b"', "x(0)", "e"])
    for name, value in case.attributes.items():
        booster.set_attribute(name, value)
    rows = scoring(case)
    scored = Matrix(library, rows, None, types(case))
    for ending in endings(version, case):
        path = directory / f"{case.name}.{ending}"
        save(booster, path)
    # Loaded anew, because training leaves settings behind that the file may not have. The last file
    # is a binary one, if there is any: XGBoost 1.0 fails to load its own JSON of pruned trees.
    loaded = booster_of(library, {"nthread": 1, "verbosity": 0}, scored, version)
    loaded.load(path)
    results = [*expected(loaded, scored, rows, case, version)]
    if version == SPARSE and not case.plain:
        results += expected_of_entries(library, loaded, case)
    own = {"value", "margin", "first"} if version in OTHER_SUMS else {}
    named = [(f"own-{name}" if name in own else name, values) for name, values in results]
    (directory / f"{case.name}.txt").write_text("".join(text(*each) for each in named))


def save(booster: Booster, path: Path) -> None:
    """Saves the model; XGBoost 3.0 writes the old format only under the name `deprecated`."""
    if path.suffix != ".bin":
        return booster.save(path)
    other = path.with_suffix(".deprecated")
    booster.save(other)
    shutil.move(other, path)
    return None


def expected(booster: Booster, matrix: Matrix, rows: np.ndarray, case: Case, version: str):
    yield "rows", rows
    for kind in ("value", "margin", "leaf"):
        if kind == "leaf" and case.rounds == 0:
            continue
        yield kind, booster.predict(matrix, kind)
    is_dart = case.parameters.get("booster") == "dart"
    explains = version in EXPLAINING and "multi_strategy" not in case.parameters
    # XGBoost 0.90 explains dart without the weights of its trees.
    if explains and not (version == "0.90" and (is_dart or case.plain)):
        yield "contributions", booster.predict(matrix, "contributions")
    # XGBoost up to 1.5 forgets the number of parallel trees when it reads a model.
    parallel = "num_parallel_tree" in case.parameters
    if case.rounds > 1 and not (parallel and number_of(version) <= (1, 5)):
        yield "first", booster.predict(matrix, "margin", (0, 1))
        if not isinstance(booster, EarlyBooster):
            yield "others", booster.predict(matrix, "margin", (1, case.rounds))
    if isinstance(booster, EarlyBooster) or is_dart:
        # XGBoost adds and subtracts the base score of dart for each tree here, and loses its last
        # bits. Early versions cannot do it.
        return
    infinite = rows[:4].copy()
    infinite[0, 0], infinite[1, 1] = np.inf, -np.inf
    infinite[2, :], infinite[3, :] = np.inf, -np.inf
    yield "infinite", infinite
    yield "infinite-margin", booster.predict_in_place(infinite, "margin")


def expected_of_entries(library: Library, booster: Booster, case: Case):
    rows = entries()
    lines = [(at, *entry) for at, row in enumerate(rows) for entry in row]
    yield "entries", np.array(lines, np.float32)
    matrix = SparseMatrix(library, rows, FEATURES)
    yield "entries-margin", booster.predict(matrix, "margin")
    if case.rounds > 0:
        yield "entries-leaf", booster.predict(matrix, "leaf")


def text(name: str, values: np.ndarray) -> str:
    lines = [f"{name} {values.shape[0]} {values.shape[1]}"]
    lines += [" ".join(number(value) for value in row) for row in values.astype(np.float32)]
    return "\n".join(lines) + "\n"


def number(value: np.float32) -> str:
    """The shortest text that is this f32."""
    return str(value).removesuffix(".0")


if __name__ == "__main__":
    main()
