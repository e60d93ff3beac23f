"""The demo's model as trees: XGBoost predicts from the data of `campaign` who visits the shop."""

from pathlib import Path

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


def train(
    campaign: Campaign, directory: Path, version: str, rounds: int = 60, **package: object
) -> ModelPackage:
    """Trains a booster on the visits, and writes it with golden cases. `package` is passed to
    `tree_package`.
    """
    import xgboost

    metadata = Metadata((Input(FEATURES, JOINED, "float32", COLUMNS),))
    ones = [1] * len(campaign.customers)
    table = pack(metadata, campaign.customers, campaign.sent, counts=ones)[FEATURES]
    types = ["q" if column.vocabulary is None else "c" for column in COLUMNS]
    data = xgboost.DMatrix(
        table,
        campaign.visits,
        feature_names=[column.name for column in COLUMNS],
        feature_types=types,
        enable_categorical=True,
    )
    parameters = {"objective": "binary:logistic", "max_depth": 5, "eta": 0.1, "seed": 1}
    booster = xgboost.train(parameters, data, rounds)
    return tree_package(
        booster,
        COLUMNS,
        directory,
        annotations={"version": version},
        golden=(campaign.customers.iloc[:4], OFFERS),
        **package,
    )
