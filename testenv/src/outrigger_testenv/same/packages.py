"""The packages that cases name. Both programs serve the same files."""

from pathlib import Path

import numpy as np

from outrigger_testenv import campaign, campaign_trees, machines, onnxmodels, variants
from outrigger_testenv.builder import machine_package
from outrigger_testenv.cost.requests import write_sparse
from outrigger_testenv.everything import INPUTS, LIST_INPUTS, OUTPUTS, WIDE_OUTPUTS, everything
from outrigger_testenv.features import (
    JOINED,
    TREATMENT,
    USER,
    Input,
    Metadata,
    Output,
    numeric,
    sparse_list,
    weight_of,
)
from outrigger_testenv.same import scripted

FAULTS = {
    "golden": "trees",
    "machine": "machine",
    "onnx": "onnx",
    "scripted": "scripted",
    "tiny": "tiny",
    "unsigned": "trees",
}
"""The packages of the models whose cases are about what goes wrong, by model."""

CROWDS = (
    *(
        f"{name}-{front}"
        for name in ("crowd", "limited")
        for front in ("http", "low", "grpc", "users", "oip", "oip-grpc")
    ),
    "given-up",
)
"""The models of `scripted` whose places are taken: each for one case, since they learn from it."""

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
    write_sparse(directory / "sparse" / "7")
    onnxmodels.table(directory / "onnx")
    _scripted(directory / "scripted")


def _scripted(directory: Path) -> None:
    """A model of the scripted engine."""
    directory.mkdir()
    features = tuple(numeric(name, entity=TREATMENT, required=True) for name in ("told", "value"))
    Metadata(
        (Input(scripted.INPUT, JOINED, "float32", features),),
        (Output(scripted.OUTPUT, "score"),),
        framework="oip",
        remote={"model": scripted.MODEL},
    ).write(directory)


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
