"""The margins of the kernels beside those of XGBoost, bit by bit."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.bench.trees import special
from outrigger_testenv.bench.trees.kernels import KINDS, ROWS, VERSIONS, WIDTHS, ours, xgboost
from outrigger_testenv.bench.trees.models import models
from outrigger_testenv.bench.trees.special import SPECIAL
from outrigger_testenv.bench.trees.workers import Worker, started

# The questions about dense rows, which XGBoost scores in place, and about sparse ones, of which it
# makes a matrix.
_DENSE, _SPARSE = "margins", "matrix"
# The forms of the rows of each kind for models A to D; for smaller ones, all kinds have both.
_FORMS = {"dense": (_DENSE,), "missing": (_DENSE,), "sparse": (_SPARSE,)}
_SPECIAL = {each.name for each in SPECIAL}
# XGBoost 3.0.5 scores models of dart in place by adding and subtracting the base score for each
# tree, which loses the last bits: these margins differ from those of its own matrix.
_DART = {each.name for each in SPECIAL if each.is_dart}


def bits(_: Setup, effort: Effort) -> Measurement:
    """The number of margins that differ in any bit from those of either version of XGBoost, for all
    models, kinds and numbers of rows, and widths of vectors.
    """
    del effort
    differ, compared = Counter(), 0
    with tempfile.TemporaryDirectory() as directory:
        files = [*models(), *special.train(Path(directory))]
        own = [ours(width, files) for width in WIDTHS]
        others = [xgboost(each, files) for each in VERSIONS]
        with started(*own, *others):
            for file, rows, kind in product(files, ROWS, KINDS):
                expected = list(_margins(others, file.name, rows, kind))
                for name, margins in _margins(own, file.name, rows, kind):
                    for other, others_margins in expected:
                        differ[f"{name}; {other}"] += different(margins, others_margins)
                        compared += len(others_margins)
    return Measurement([differ.total()], {"compared": compared, "differ": dict(differ)})


def _margins(
    workers: Sequence[Worker], model: str, rows: int, kind: str
) -> Iterator[tuple[str, Sequence[int]]]:
    """The margins of each worker for the forms of the rows, with a name."""
    forms = (_DENSE, _SPARSE) if model in _SPECIAL else _FORMS[kind]
    for worker, form in product(workers, forms):
        if form == _DENSE and model in _DART and worker.name.startswith("XGBoost"):
            continue
        yield f"{worker.name}, {form}", worker.ask(form, model, rows, kind)


def different(own: Sequence[int], others: Sequence[int]) -> int:
    """The number of margins, as bits, that differ; all if their numbers differ."""
    if len(own) != len(others):
        return max(len(own), len(others))
    return sum(one != other for one, other in zip(own, others, strict=True))
