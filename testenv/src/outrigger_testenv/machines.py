"""Boosters whose leaves are features of a factorisation machine, in model packages: their files,
and their scores by XGBoost and numpy.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from outrigger_testenv.trees import fm

BINARY = "gbdt_fm"
SOFTMAX = "gbdt_fm_softmax"
FRAMEWORKS = (BINARY, SOFTMAX)
# The features of trees and machine, and those of the machine alone.
XGBOOST_FEATURES = "xgboost_features"
FM_FEATURES = "fm_features"

_DIRECTORY = "gbdt_fm"
_OPTIONS = "options.json"
_NAMES = "deploy.names"


@dataclass(frozen=True)
class Machine:
    """A factorisation machine. A feature has, for each class, its weight and its vector."""

    bias: np.ndarray
    """A number for each class; one number for two classes."""
    features: Mapping[int, np.ndarray]
    """By id, an array [classes, 1 + factors]."""
    leaves: Mapping[tuple[int, int], int]
    """The ids of leaves, by tree and number."""
    names: Mapping[str, int] = field(default_factory=dict)
    """The ids of the features that have names in deploy.fm."""

    @property
    def framework(self) -> str:
        return BINARY if len(self.bias) == 1 else SOFTMAX

    def lines(self) -> list[str]:
        """The text of deploy.fm: XGBoost Serving's for two classes, else alphaFM_softmax's, with 0
        for the state of its trainer.
        """
        state = 0 if self.framework == BINARY else 2

        def line(name: object, classes: np.ndarray) -> str:
            fields = [[*values, *[0.0] * (state * len(values))] for values in classes.tolist()]
            return " ".join([str(name), *(repr(field) for each in fields for field in each)])

        head = line("bias", self.bias[:, None])
        names = {id: name for name, id in self.names.items()}
        named = ((names.get(id, id), classes) for id, classes in self.features.items())
        return [head, *(line(name, classes) for name, classes in named)]

    def mapping(self) -> list[str]:
        """The lines of deploy.leaf_mapping."""
        lines: dict[int, str] = {}
        for (tree, leaf), id in sorted(self.leaves.items()):
            lines[tree] = f"{lines.get(tree, tree)} {leaf}:{id}"
        return list(lines.values())


def draw(booster: Any, ids: Iterable[int], classes: int, factors: int, seed: int) -> Machine:
    """A machine of random numbers for these ids, and for all leaves of a booster."""
    random = np.random.default_rng(seed)
    table = booster.trees_to_dataframe()
    table = table[table["Feature"] == "Leaf"]
    leaves = {
        (tree, leaf): (1 << 33) + at
        for at, (tree, leaf) in enumerate(zip(table["Tree"], table["Node"], strict=True))
    }
    features = {
        id: random.normal(0, 0.3, (classes, 1 + factors)).astype("f4")
        for id in [*ids, *leaves.values()]
    }
    return Machine(random.normal(0, 1, classes).astype("f4"), features, leaves)


def write(
    booster: Any,
    machine: Machine,
    directory: Path,
    file: str = "model.ubj",
    precision: str | None = None,
) -> None:
    """Writes the files of a model and its options into `directory`/gbdt_fm."""
    target = Path(directory) / _DIRECTORY
    target.mkdir(parents=True, exist_ok=True)
    booster.save_model(target / file)
    (target / "deploy.fm").write_text("\n".join(machine.lines()) + "\n")
    (target / "deploy.leaf_mapping").write_text("\n".join(machine.mapping()) + "\n")
    if machine.names:
        names = (f"{name} {id}\n" for name, id in machine.names.items())
        (target / _NAMES).write_text("".join(names))
    if precision is not None:
        (target / _OPTIONS).write_text(json.dumps({"precision": precision}) + "\n")


def function(
    directory: Path, framework: str
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """The scores of the model in a package, as a function of packed tensors. Sums are taken in the
    numbers that its options say.
    """
    import xgboost

    source = Path(directory) / _DIRECTORY
    booster = xgboost.Booster(model_file=next(source.glob("model.*")))
    machine = fm.Machine(source / "deploy.fm", _names(source), softmax=framework == SOFTMAX)
    mapped = fm.mapped_leaves(source / "deploy.leaf_mapping")
    options = source / _OPTIONS
    settings = json.loads(options.read_text()) if options.is_file() else {}
    kind = np.dtype(settings.get("precision", "float32")).type

    def call(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        of_trees = _rows(tensors, XGBOOST_FEATURES)
        of_machine = _rows(tensors, FM_FEATURES) or [[] for _ in of_trees]
        leaves = _leaves(booster, of_trees)
        margins = []
        for row, own, ended in zip(of_trees, of_machine, leaves, strict=True):
            features = [(mapped[leaf], 1.0) for leaf in enumerate(ended) if leaf in mapped]
            margins.append(machine.margins(own + row + features, kind))
        scores = [machine.values(each) for each in margins]
        return {
            name: np.array(values, "f4").reshape(len(leaves), -1)
            for name, values in (("margin", margins), ("score", scores))
        }

    return call


def _names(source: Path) -> dict[str, int]:
    """The ids of features that have names."""
    if not (source / _NAMES).is_file():
        return {}
    lines = (line.split() for line in (source / _NAMES).read_text().splitlines())
    return {name: int(id) for name, id in lines}


def _rows(tensors: Mapping[str, np.ndarray], name: str) -> list[list[tuple[int, float]]]:
    """The rows of a sparse input; none if there is no such input."""
    if name not in tensors:
        return []
    entries = zip(
        tensors[name].view("uint64").tolist(), tensors[f"{name}_weights"].tolist(), strict=True
    )
    return [[next(entries) for _ in range(length)] for length in tensors[f"{name}_lengths"]]


def _leaves(booster: Any, rows: list[list[tuple[int, float]]]) -> np.ndarray:
    """The leaf of each row in each tree, by XGBoost. Rows are made what they are to XGBoost 1.5,
    whatever version is installed: the lower 32 bits of an id count, ids that are no columns are
    ignored, and the last of equal ids counts. Later versions sort the ids of a row, and take any of
    equal ones if there are more than 16 ids.
    """
    import scipy.sparse
    import xgboost

    columns = booster.num_features()
    last = [{id % 2**32: x for id, x in row if not np.isnan(x)} for row in rows]
    present = [{id: x for id, x in row.items() if id < columns} for row in last]
    offsets = np.cumsum([0, *(len(row) for row in present)])
    indices = [id for row in present for id in row]
    weights = np.array([x for row in present for x in row.values()], "f4")
    matrix = scipy.sparse.csr_matrix((weights, indices, offsets), (len(rows), columns))
    data = xgboost.DMatrix(matrix, feature_names=booster.feature_names)
    return booster.predict(data, pred_leaf=True).reshape(len(rows), -1).astype(int)
