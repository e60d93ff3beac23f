"""The demo's model as trees: XGBoost predicts from the data of `campaign` who visits the shop."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.boosters import FEATURES
from outrigger_testenv.builder import ModelPackage, tree_package
from outrigger_testenv.campaign import CHANNELS, OFFERS, ZIP_CODES, Campaign
from outrigger_testenv.features import (
    JOINED,
    TREATMENT,
    USER,
    Feature,
    Input,
    Metadata,
    numeric,
    vocabulary,
)
from outrigger_testenv.packing import pack
from outrigger_testenv.uplift import TLearner

# The columns of the model, which training and serving share. A word that is not in a list becomes
# -1, which belongs to no category.
COLUMNS: tuple[Feature, ...] = (
    *(
        numeric(name, entity=USER, missing="nan")
        for name in ("recency", "history", "mens", "womens", "newbie")
    ),
    vocabulary("zip_code", ZIP_CODES, other=-1, entity=USER, missing="nan"),
    vocabulary("channel", CHANNELS, other=-1, entity=USER, missing="nan"),
    *(numeric(name, entity=TREATMENT, required=True) for name in OFFERS.columns),
)

PARAMETERS = {"objective": "binary:logistic", "max_depth": 5, "eta": 0.1, "seed": 1}
"""The parameters of XGBoost."""

# The e-mail that a customer gets, by its name: one that the model does not know has no effect.
OFFER = vocabulary("offer", list(OFFERS.index), other=0, entity=TREATMENT, required=True)
NAMED_OFFERS = pd.DataFrame({"offer": OFFERS.index}, index=OFFERS.index)


def train(
    campaign: Campaign, directory: Path, version: str, rounds: int = 60, **package: object
) -> ModelPackage:
    """Trains a booster on the visits, and writes it with golden cases. `package` is passed to
    `tree_package`.
    """
    everyone = np.full(len(campaign.customers), True)
    booster = _booster(campaign, COLUMNS, everyone, rounds)
    return tree_package(
        booster,
        COLUMNS,
        directory,
        annotations={"version": version},
        golden=(campaign.customers.iloc[:4], OFFERS),
        **package,
    )


def train_arms(
    campaign: Campaign, directory: Path, rounds: int = 60, **package: object
) -> ModelPackage:
    """Trains a booster for each e-mail and one for none, and writes them as a T-learner with golden
    cases.
    """
    columns = [column for column in COLUMNS if column.entity == USER]
    files = dict(zip(OFFERS.index, ["control", "mens", "womens"], strict=True))
    sent = {word: (campaign.sent == offer).all(axis=1) for word, offer in OFFERS.iterrows()}
    boosters = {
        name: _booster(campaign, columns, sent[word].to_numpy(), rounds)
        for word, name in files.items()
    }
    return tree_package(
        boosters["control"],
        columns,
        directory,
        output="value_uplift",
        uplift=TLearner(OFFER, {**boosters, "control": None}),
        golden=(campaign.customers.iloc[:4], NAMED_OFFERS),
        **package,
    )


def _booster(campaign: Campaign, columns: Sequence[Feature], some: np.ndarray, rounds: int) -> Any:
    """Trains a booster on the visits of some customers."""
    import xgboost

    data = xgboost.DMatrix(
        table(campaign, columns, some),
        campaign.visits[some],
        feature_names=[column.name for column in columns],
        feature_types=["q" if column.vocabulary is None else "c" for column in columns],
        enable_categorical=True,
    )
    return xgboost.train(PARAMETERS, data, rounds)


def table(campaign: Campaign, columns: Sequence[Feature], some: np.ndarray) -> np.ndarray:
    """The columns of some customers, each with the e-mail that was sent."""
    metadata = Metadata((Input(FEATURES, JOINED, "float32", tuple(columns)),))
    customers, sent = campaign.customers[some], campaign.sent[some]
    return pack(metadata, customers, sent, counts=[1] * len(customers))[FEATURES]
