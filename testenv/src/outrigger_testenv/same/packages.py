"""The packages that cases name. Both programs serve the same files."""

from pathlib import Path

import numpy as np

from outrigger_testenv import campaign, campaign_trees, machines, variants
from outrigger_testenv.builder import ModelPackage, machine_package
from outrigger_testenv.everything import INPUTS, LIST_INPUTS, OUTPUTS, WIDE_OUTPUTS, everything
from outrigger_testenv.features import JOINED, TREATMENT, USER, Input, sparse_list, weight_of

NAMES = ("arms", "everything", "machine", "tiny", "trees")
_COLUMNS = 40


def make(directory: Path) -> None:
    """Makes all packages, in directories of their names."""
    table = campaign.generate(2000)
    campaign_trees.train(table, directory / "trees", "1", rounds=10)
    campaign_trees.train_arms(table, directory / "arms", rounds=5)
    variants.tiny_builder().build(variants.good, directory / "tiny")
    everything(directory / "everything", [*OUTPUTS, *WIDE_OUTPUTS], [*INPUTS, *LIST_INPUTS])
    _machine(directory / "machine")


def packages(directory: Path) -> dict[str, ModelPackage]:
    """The packages by name."""
    return {name: ModelPackage(directory / name) for name in NAMES}


def _machine(directory: Path) -> None:
    """A booster with a factorisation machine of three classes."""
    import scipy.sparse
    import xgboost

    draw = np.random.default_rng(1)
    table = scipy.sparse.random(500, _COLUMNS, 0.3, "csr", "f4", draw, draw.standard_normal)
    labels = np.asarray(table.sum(axis=1)).ravel() > 0
    parameters = {"objective": "binary:logistic", "max_depth": 3}
    booster = xgboost.train(parameters, xgboost.DMatrix(table, labels), 5)
    inputs = (
        _sparse(
            machines.XGBOOST_FEATURES,
            sparse_list("profile", 30, entity=USER, default=[]),
            weight_of("discount", 1, entity=TREATMENT, required=True),
        ),
        _sparse(
            machines.FM_FEATURES,
            sparse_list("words", 5, entity=TREATMENT, vocabulary={"hats": 50}, default=[]),
        ),
    )
    machine = machines.draw(booster, range(_COLUMNS + 20), 3, 4, seed=2)
    machine_package(booster, machine, inputs, directory, score_column=2)


def _sparse(name, *features):
    return Input(name, JOINED, "int64", features, f"{name}_lengths", f"{name}_weights")
