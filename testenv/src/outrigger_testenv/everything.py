"""A model with every kind of feature, dtype and output that metadata.json knows."""

from collections.abc import Sequence
from pathlib import Path

from outrigger_testenv.builder import ModelBuilder, ModelPackage
from outrigger_testenv.features import (
    SINGLE,
    TREATMENT,
    TREATMENT_COUNT,
    USER,
    Input,
    Output,
    hashed,
    list_of,
    numeric,
    sparse_list,
    text,
    vector,
    vocabulary,
    weight_of,
)

INPUTS = [
    Input(
        "user_numeric",
        USER,
        "float32",
        (
            numeric("recency", default=6),
            vector("embedding", 4, required=True),
            numeric("balance", missing="nan"),
        ),
    ),
    Input("user_exact", USER, "float64", (numeric("income", default=0.1),)),
    Input(
        "user_words",
        USER,
        "int64",
        (
            vocabulary("channel", ["phone", "web", "multichannel"], default="web"),
            vocabulary("zone", [10, 20, 30], other=9, default=10),
            hashed("city", 1_000_000_007, default=""),
        ),
    ),
    Input("user_texts", USER, "string", (text("language", default="en"),)),
    Input(
        "treatment_numeric",
        TREATMENT,
        "float32",
        (
            numeric("discount", required=True),
            numeric("days_live", missing="nan"),
            vector("picture", 3, default=[0.5, 0, -0.5]),
        ),
    ),
    Input(
        "treatment_words",
        TREATMENT,
        "int32",
        (
            vocabulary("category", ["toys", "books"], other=7, default="toys"),
            hashed("brand", 50, default="none"),
            numeric("stock", default=1),
        ),
    ),
    Input("treatment_flags", TREATMENT, "bool", (numeric("is_new", default=False),)),
    Input("treatment_texts", TREATMENT, "string", (text("colour", default="red"),)),
    Input("treatment_count", TREATMENT_COUNT, "int32"),
]

OUTPUTS = [
    Output("scores", "score"),
    Output("rank", "rank"),
    Output("churn", "churn", SINGLE),
]
# Version bf15645 refuses these, and tests of upgrades serve the model with it.
LIST_INPUTS = [
    Input(
        "user_history",
        USER,
        "int64",
        (
            list_of(
                "history", 6, vocabulary=("shoes", "hats"), out_of_vocabulary=2, default=["hats"]
            ),
        ),
        lengths="user_history_lengths",
    ),
    Input(
        "treatment_tags",
        TREATMENT,
        "string",
        (list_of("tags", 4, default=[]),),
        lengths="treatment_tags_lengths",
    ),
    Input(
        "treatment_prices",
        TREATMENT,
        "float32",
        (list_of("prices", 3, padding=-1, default=[0.5, 2.5]),),
    ),
    Input(
        "user_ids",
        USER,
        "int64",
        (sparse_list("interests", 6, default=[]), weight_of("age", 2**63 + 1, default=0.5)),
        lengths="user_ids_lengths",
        weights="user_ids_weights",
    ),
    Input(
        "treatment_ids",
        TREATMENT,
        "int64",
        (
            sparse_list("subjects", 4, vocabulary={"shoes": 2**64 - 1, "hats": 17}, default=[]),
            sparse_list("shelf", 1, vocabulary=("left", "right"), default=["right"]),
        ),
        lengths="treatment_ids_lengths",
        weights="treatment_ids_weights",
    ),
]
WIDE_OUTPUTS = [
    Output("chances", "chance", width=3, score_column=1),
    Output("counts", "counts", SINGLE, width=2),
]


def everything(
    directory: Path, outputs: Sequence[Output] = OUTPUTS, inputs: Sequence[Input] = INPUTS
) -> ModelPackage:
    """Builds the model; every input influences the scores."""

    def model(**tensors):
        return _mix(inputs, tensors)

    return ModelBuilder(inputs, outputs).build(model, directory)


def _mix(inputs, tensors):
    import tensorflow as tf

    def sums(entity):
        return sum(_sums(each, tensors) for each in inputs if each.entity == entity)

    user, offer, counts = sums(USER), sums(TREATMENT), tensors["treatment_count"]
    scores = user[:, None] + offer + 0.01 * tf.cast(counts, tf.float32)[:, None]
    return {
        "scores": scores,
        # the shape [B, T, 1] and another dtype are allowed too
        "rank": tf.cast(tf.round(100 * scores), tf.int64)[:, :, None],
        "churn": user[:, None] + tf.reduce_sum(offer, 1, keepdims=True),
        "chances": tf.nn.softmax(scores[:, :, None] * [1.0, 2.0, -1.0]),
        # Integers that float32 cannot represent.
        "counts": tf.stack([counts, counts + 2**24 + 1], 1),
    }


def _sums(each, tensors):
    """A number for each row of an input."""
    import tensorflow as tf

    tensor = tensors[each.tensor]
    if each.weights is not None:
        tensor = tf.cast(tensor % 1000, tf.float32) / 1000 * tensors[each.weights]
    if tensor.dtype == tf.string:
        tensor = tf.strings.length(tensor)
    tensor = tf.cast(tensor, tf.float32)
    tensor = tf.where(tf.math.is_nan(tensor), -1.0, tensor)
    if each.lengths is None:
        sums = tf.reduce_sum(tensor, -1)
    else:
        lengths = tensors[each.lengths]
        lists = tf.RaggedTensor.from_row_lengths(tensor, tf.reshape(lengths, [-1]))
        sums = tf.reshape(tf.reduce_sum(lists, 1), tf.shape(lengths))
    # Not 0 for zeros, so that padding changes sums over rows.
    return tf.sin(sums + 0.5)
