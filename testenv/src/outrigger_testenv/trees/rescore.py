"""Adds to the fixtures of an early version of XGBoost the results of XGBoost 1.5 for these files.
See `outrigger_testenv.trees.worker`.
"""

import sys
from pathlib import Path

from outrigger_testenv.trees.cases import CASES, scoring
from outrigger_testenv.trees.library import Booster, Library, Matrix
from outrigger_testenv.trees.worker import text


def main() -> None:
    library, directory = Library(Path(sys.argv[1])), Path(sys.argv[2])
    for case in CASES:
        path = directory / f"{case.name}.bin"
        if not path.exists():
            continue
        matrix = Matrix(library, scoring(case))
        booster = Booster(library, {"nthread": 1, "verbosity": 0}, matrix)
        booster.load(path)
        with path.with_suffix(".txt").open("a") as file:
            for kind in ("value", "margin"):
                file.write(text(kind, booster.predict(matrix, kind)))


if __name__ == "__main__":
    main()
