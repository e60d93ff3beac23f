"""A model with wide treatments and defaults: a small request makes tensors of megabytes."""

from pathlib import Path

from outrigger_testenv.builder import ModelBuilder, ModelPackage
from outrigger_testenv.features import TREATMENT, USER, Input, numeric, vector

WIDTH = 250


def package(directory: Path) -> ModelPackage:
    """A model whose treatments have 250 numbers each, all zero by default."""
    import tensorflow as tf

    def zero(user, offer):
        return 0 * tf.reduce_sum(offer, axis=2) + 0 * user

    inputs = [
        Input("user", USER, "float32", (numeric("age", default=30),)),
        Input("offer", TREATMENT, "float32", (vector("embedding", WIDTH, default=[0.0] * WIDTH),)),
    ]
    return ModelBuilder(inputs).build(zero, directory)
