"""The demo's model for MLServer: XGBoost predicts from the data of `campaign` who visits the shop.

The package carries the model as MLServer's runtime for XGBoost reads it. Words are numbers for it,
not categories.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.campaign import CHANNELS, OFFERS, ZIP_CODES, Campaign
from outrigger_testenv.campaign_trees import PARAMETERS, table
from outrigger_testenv.features import (
    JOINED,
    TREATMENT,
    USER,
    Feature,
    Input,
    Metadata,
    Output,
    numeric,
    vocabulary,
)

# The model in the package, and its only input and output.
_MODEL, _INPUT, _OUTPUT = "visits", "x", "predict"

COLUMNS: tuple[Feature, ...] = (
    *(
        numeric(name, entity=USER, required=True)
        for name in ("recency", "history", "mens", "womens", "newbie")
    ),
    vocabulary("zip_code", ZIP_CODES, other=-1, entity=USER, required=True),
    vocabulary("channel", CHANNELS, other=-1, entity=USER, required=True),
    *(numeric(name, entity=TREATMENT, required=True) for name in OFFERS.columns),
)


def train(campaign: Campaign, directory: Path, version: str, rounds: int) -> ModelPackage:
    """Trains a booster on the visits, and writes a package that carries it, with golden cases."""
    import xgboost

    everyone = np.full(len(campaign.customers), True)
    data = xgboost.DMatrix(table(campaign, COLUMNS, everyone), campaign.visits)
    booster = xgboost.train(PARAMETERS, data, rounds)
    model = directory / "oip" / _MODEL
    model.mkdir(parents=True)
    booster.save_model(model / "model.json")
    settings = {"name": _MODEL, "implementation": "mlserver_xgboost.XGBoostModel"}
    settings["parameters"] = {"uri": "./model.json"}
    (model / "model-settings.json").write_text(json.dumps(settings))
    Metadata(
        (Input(_INPUT, JOINED, "float32", COLUMNS),),
        (Output(_OUTPUT, "score"),),
        annotations={"version": version},
        framework="oip",
        remote={"model": _MODEL},
    ).write(directory)

    def function(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {_OUTPUT: booster.inplace_predict(tensors[_INPUT])[:, np.newaxis]}

    package = ModelPackage(directory, function)
    package.write_golden(campaign.customers.iloc[:4], OFFERS)
    return package
