"""The demo's model: it predicts which e-mail campaign makes a customer come back to a shop.

The data has the columns of the MineThatData e-mail challenge (Kevin Hillstrom,
2008): customers who were randomly sent one of two campaigns or none, and whether
they visited the shop in the two weeks after.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from outrigger_testenv.builder import ModelBuilder, ModelPackage
from outrigger_testenv.features import (
    TREATMENT,
    TREATMENT_COUNT,
    USER,
    Input,
    numeric,
    vocabulary,
)
from outrigger_testenv.packing import constants, pack

ZIP_CODES = ["Urban", "Surburban", "Rural"]
CHANNELS = ["Phone", "Web", "Multichannel"]

# The treatments; a label is a value of the data's column "treatment".
OFFERS = pd.DataFrame(
    {"mens_goods": [0, 1, 0], "womens_goods": [0, 0, 1]},
    index=["No E-Mail", "Mens E-Mail", "Womens E-Mail"],
).astype("float32")

USER_COLUMNS = ["recency", "history", "mens", "womens", "newbie", "zip_code", "channel"]


@dataclass(frozen=True)
class Campaign:
    """Customers, the treatment sent to each (a row of OFFERS), and whether they visited."""

    source: str
    customers: pd.DataFrame
    sent: pd.DataFrame
    visits: np.ndarray


def load(path: Path) -> Campaign:
    """Reads the MineThatData file."""
    table = pd.read_csv(path)
    needed = [*USER_COLUMNS, "treatment", "visit"]
    if missing := [name for name in needed if name not in table.columns]:
        raise ValueError(f"{path} has no column {', '.join(missing)}")
    unknown = set(table["treatment"]) - set(OFFERS.index)
    if unknown:
        raise ValueError(f"{path} has treatments other than the three campaigns: {unknown}")
    return _campaign(path.name, table)


def generate(customers: int = 40_000, seed: int = 7) -> Campaign:
    """Generates a table of the same form, in which people like what they bought before."""
    draw = np.random.default_rng(seed)
    mens = draw.random(customers) < 0.55
    table = pd.DataFrame(
        {
            "recency": draw.integers(1, 13, customers),
            "history": np.round(30 + draw.gamma(1.0, 210, customers), 2),
            "mens": mens.astype("int64"),
            "womens": (~mens | (draw.random(customers) < 0.2)).astype("int64"),
            "newbie": (draw.random(customers) < 0.5).astype("int64"),
            "zip_code": draw.choice(ZIP_CODES, customers, p=[0.4, 0.45, 0.15]),
            "channel": draw.choice(CHANNELS, customers, p=[0.44, 0.44, 0.12]),
            "treatment": draw.choice(OFFERS.index.to_numpy(), customers),
        }
    )
    sent_mens = table["treatment"] == "Mens E-Mail"
    sent_womens = table["treatment"] == "Womens E-Mail"
    likes = (
        -1.9
        - 0.07 * table["recency"]
        + 0.0006 * table["history"]
        - 0.35 * table["newbie"]
        + sent_mens * (0.1 + 0.8 * table["mens"])
        + sent_womens * (0.05 + 0.9 * table["womens"] - 0.5 * table["mens"])
    )
    table["visit"] = (draw.random(customers) < 1 / (1 + np.exp(-likes))).astype("int64")
    return _campaign("generated table", table)


def _campaign(source: str, table: pd.DataFrame) -> Campaign:
    customers = table[USER_COLUMNS].copy()
    customers.index = [f"customer-{at}" for at in range(len(table))]
    sent = OFFERS.loc[table["treatment"]].reset_index(drop=True)
    return Campaign(source, customers, sent, table["visit"].to_numpy("float32"))


def builder(version: str) -> ModelBuilder:
    """The builder with the feature list, which training and serving share."""
    return ModelBuilder(
        [
            Input(
                "customer_numbers",
                USER,
                "float32",
                (
                    numeric("recency", default=6),
                    numeric("history", default=100),
                    numeric("mens", default=0),
                    numeric("womens", default=0),
                    numeric("newbie", default=0),
                ),
            ),
            Input(
                "customer_words",
                USER,
                "int64",
                (
                    vocabulary("zip_code", ZIP_CODES, default="Surburban"),
                    vocabulary("channel", CHANNELS, default="Web"),
                ),
            ),
            Input(
                "offer_numbers",
                TREATMENT,
                "float32",
                (numeric("mens_goods", required=True), numeric("womens_goods", required=True)),
            ),
            Input("offer_count", TREATMENT_COUNT, "int32"),
        ],
        annotations={"version": version},
    )


def train(campaign: Campaign, directory: Path, version: str, epochs: int = 3) -> ModelPackage:
    """Trains a small network on the visits, and exports it with golden cases and a profile."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    made = builder(version)
    ones = [1] * len(campaign.customers)
    tensors = constants(pack(made.metadata, campaign.customers, campaign.sent, counts=ones))
    network = _network(tensors["customer_numbers"])
    data = tf.data.Dataset.from_tensor_slices((tensors, campaign.visits))
    optimizer = tf.keras.optimizers.Adam(0.005)

    @tf.function
    def step(inputs, visits):
        with tf.GradientTape() as tape:
            logits = network.logits(**inputs)[:, 0]
            losses = tf.nn.sigmoid_cross_entropy_with_logits(visits, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))

    for inputs, visits in data.shuffle(len(ones), seed=1).batch(512, True).repeat(epochs):
        step(inputs, visits)
    package = made.build(network, directory, golden=(campaign.customers.iloc[:4], OFFERS))
    package.write_profile(campaign.customers, campaign.sent)
    return package


def _network(numbers):
    import tensorflow as tf

    class Network(tf.Module):
        """A network over rows of an offer with its customer; the score is the probability of a
        visit.
        """

        def __init__(self):
            super().__init__()
            self.mean = tf.constant(tf.reduce_mean(numbers, 0))
            self.deviation = tf.constant(tf.math.reduce_std(numbers, 0) + 1e-6)
            inputs = numbers.shape[1] + len(ZIP_CODES) + len(CHANNELS) + len(OFFERS.columns)
            widths = (inputs, 24, 12, 1)
            glorot = tf.keras.initializers.GlorotUniform(seed=1)
            pairs = list(pairwise(widths))
            self.weights = [tf.Variable(glorot(pair)) for pair in pairs]
            self.biases = [tf.Variable(tf.zeros(after)) for _, after in pairs]

        def logits(self, customer_numbers, customer_words, offer_numbers, offer_count):
            del offer_count  # the control plane trims its padding itself
            customer = tf.concat(
                [
                    (customer_numbers - self.mean) / self.deviation,
                    # An unknown word gives a row of zeros.
                    tf.one_hot(customer_words[:, 0], len(ZIP_CODES)),
                    tf.one_hot(customer_words[:, 1], len(CHANNELS)),
                ],
                axis=-1,
            )
            offers = tf.shape(offer_numbers)[1]
            rows = tf.concat(
                [tf.repeat(customer[:, None, :], offers, axis=1), offer_numbers], axis=-1
            )
            for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                rows = tf.nn.relu(tf.tensordot(rows, weight, 1) + bias)
            return tf.squeeze(tf.tensordot(rows, self.weights[-1], 1) + self.biases[-1], -1)

        def __call__(self, **inputs):
            return {"scores": tf.sigmoid(self.logits(**inputs))}

    return Network()
