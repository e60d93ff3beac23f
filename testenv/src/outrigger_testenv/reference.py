"""The reference model, with which every published figure of the request path is measured."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from outrigger_testenv.builder import ModelBuilder, ModelPackage
from outrigger_testenv.features import TREATMENT, TREATMENT_COUNT, USER, Input, numeric

USER_FEATURES = 4
TREATMENT_FEATURES = 20
LAYERS = (64, 32, 1)
USER_NAMES = [f"user_feature_{at:02}" for at in range(USER_FEATURES)]
TREATMENT_NAMES = [f"treatment_feature_{at:02}" for at in range(TREATMENT_FEATURES)]


def reference_builder() -> ModelBuilder:
    """A builder with 4 user features and 20 treatment features, all float32."""
    users = tuple(numeric(name, default=0) for name in USER_NAMES)
    treatments = tuple(numeric(name, required=True) for name in TREATMENT_NAMES)
    return ModelBuilder(
        [
            Input("user", USER, "float32", users),
            Input("treatment", TREATMENT, "float32", treatments),
            Input("treatment_count", TREATMENT_COUNT, "int32"),
        ],
        annotations={"purpose": "reference model for measurements"},
    )


def reference_model(directory: Path, seed: int = 1, golden: bool = True) -> ModelPackage:
    """Builds the model with random but fixed weights; its usual load is 1,000 treatments."""
    golden_frames = reference_frames(2, 3, seed) if golden else None
    return reference_builder().build(reference_network(seed), directory, golden_frames)


def reference_frames(
    users: int, treatments: int, seed: int = 1
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Random users, and treatments for all of them."""
    draw = np.random.default_rng(seed)
    people = pd.DataFrame(draw.normal(size=(users, USER_FEATURES)).astype("f4"), columns=USER_NAMES)
    offers = pd.DataFrame(
        draw.normal(size=(treatments, TREATMENT_FEATURES)).astype("f4"), columns=TREATMENT_NAMES
    )
    people.index = [f"user-{at}" for at in range(users)]
    offers.index = [f"treatment-{at}" for at in range(treatments)]
    return people, offers


def reference_network(seed: int = 1):
    """The network as a tf.Module over the tensors of the reference model."""
    import tensorflow as tf

    class Network(tf.Module):
        """A network over rows of a treatment with its user; three dense layers score it."""

        def __init__(self):
            super().__init__()
            draw = np.random.default_rng(seed)
            widths = (USER_FEATURES + TREATMENT_FEATURES, *LAYERS)
            self.weights, self.biases = [], []
            for before, after in pairwise(widths):
                scale = np.sqrt(2.0 / before)
                weight = draw.normal(scale=scale, size=(before, after)).astype("f4")
                self.weights.append(tf.Variable(weight))
                self.biases.append(tf.Variable(np.zeros(after, "f4")))

        def __call__(self, user, treatment, treatment_count=None):
            del treatment_count  # the control plane trims its padding itself
            users, count = tf.shape(treatment)[0], tf.shape(treatment)[1]
            beside = tf.broadcast_to(user[:, None, :], [users, count, USER_FEATURES])
            rows = tf.concat([beside, treatment], axis=-1)
            # With matrices and bias_add, TensorFlow fuses each layer into one operation.
            rows = tf.reshape(rows, [-1, USER_FEATURES + TREATMENT_FEATURES])
            for at, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
                rows = tf.nn.bias_add(tf.matmul(rows, weight), bias)
                rows = tf.nn.relu(rows) if at + 1 < len(LAYERS) else rows
            return {"scores": tf.reshape(tf.sigmoid(rows), [users, count])}

    return Network()
