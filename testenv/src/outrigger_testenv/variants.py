"""A tiny model and variants of it: some that score by a formula, and any number of versions with a
constant score each.

TensorFlow exports only one of the versions; the others are copies with another constant, so that a
hundred versions cost a second.
"""

import shutil
import struct
from pathlib import Path

from outrigger_testenv.builder import ModelBuilder, ModelPackage
from outrigger_testenv.features import TREATMENT, USER, Input, numeric

_MARK = 123456.75


def tiny_builder() -> ModelBuilder:
    """A builder with one user feature and one treatment feature."""
    return ModelBuilder(
        [
            Input("user", USER, "float32", (numeric("age", default=30),)),
            Input("offer", TREATMENT, "float32", (numeric("price", required=True),)),
        ]
    )


def good(user, offer):
    """A score that depends on both features."""
    import tensorflow as tf

    return tf.sigmoid(0.05 * (user - 40.0) + 0.1 * offer[:, :, 0])


def better(user, offer):
    """Nearly the same scores by another graph."""
    return 0.999 * good(user, offer)


def constant(user, offer):
    """A constant score, as of a model that has learned nothing."""
    return 0.5 + 0.0 * good(user, offer)


def tiny(directory: Path, score: float = _MARK) -> ModelPackage:
    """A model that gives every treatment the same score."""
    import tensorflow as tf

    def marked(user, offer):
        return tf.zeros_like(offer[:, :, 0]) + 0 * user + tf.constant(_MARK, tf.float32)

    package = tiny_builder().build(marked, directory)
    if score != _MARK:
        _set_score(package, score)
    return package


def versions(directory: Path, scores: range) -> list[ModelPackage]:
    """One package per score, in directories named after the scores."""
    template = tiny(directory / "template")
    packages = []
    for score in scores:
        target = directory / str(score)
        shutil.copytree(template.directory, target)
        packages.append(ModelPackage(target))
        _set_score(packages[-1], score)
    return packages


def _set_score(package: ModelPackage, score: float) -> None:
    file = package.saved_model / "saved_model.pb"
    content = file.read_bytes()
    mark = struct.pack("<f", _MARK)
    if content.count(mark) != 1:
        raise ValueError(f"the constant occurs {content.count(mark)} times in {file}")
    file.write_bytes(content.replace(mark, struct.pack("<f", score)))
    # The fingerprint no longer matches the changed file.
    (package.saved_model / "fingerprint.pb").unlink(missing_ok=True)
