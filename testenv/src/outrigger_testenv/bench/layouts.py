"""The reference model in three forms, which differ in the tensors that it takes only."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from outrigger_testenv.builder import ModelBuilder
from outrigger_testenv.features import TREATMENT, USER, Input, numeric
from outrigger_testenv.reference import (
    TREATMENT_NAMES,
    USER_FEATURES,
    USER_NAMES,
    reference_frames,
    reference_model,
    reference_network,
)

OUTPUT = "scores"


class Layout(ABC):
    """A form of the model."""

    name: str
    title: str

    @abstractmethod
    def build(self, directory: Path) -> Path:
        """Writes the model below a directory; returns the directory of its SavedModel."""

    @abstractmethod
    def tensors(self, user: np.ndarray, treatments: np.ndarray) -> dict[str, Any]:
        """The tensors of a request, from features of shapes [1, user features] and [treatments,
        treatment features].
        """

    def request(self, treatments: int) -> bytes:
        """An encoded PredictRequest to the servable of the layout's name."""
        user, offers = reference_frames(1, treatments)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.name
        for alias, value in self.tensors(user.to_numpy(), offers.to_numpy()).items():
            request.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
        return request.SerializeToString()


class Packed(Layout):
    """One tensor for all features of the user, one for those of all treatments."""

    name, title = "packed", "packed: one tensor of the user, one of the treatments"

    def build(self, directory: Path) -> Path:
        return reference_model(directory, golden=False).saved_model

    def tensors(self, user: np.ndarray, treatments: np.ndarray) -> dict[str, Any]:
        count = np.array([len(treatments)], np.int32)
        return {"user": user, "treatment": treatments[None], "treatment_count": count}


class PerFeature(Layout):
    """One tensor for each feature."""

    name, title = "per-feature", "one tensor for each feature"

    def build(self, directory: Path) -> Path:
        class Model(tf.Module):
            def __init__(self):
                super().__init__()
                self.network = reference_network()

            def __call__(self, **features):
                user = tf.concat([features[name] for name in USER_NAMES], -1)
                treatments = tf.concat([features[name] for name in TREATMENT_NAMES], -1)
                return self.network(user, treatments)

        inputs = [
            Input(name, entity, "float32", (numeric(name, required=True),))
            for entity, names in ((USER, USER_NAMES), (TREATMENT, TREATMENT_NAMES))
            for name in names
        ]
        return ModelBuilder(inputs).build(Model(), directory).saved_model

    def tensors(self, user: np.ndarray, treatments: np.ndarray) -> dict[str, Any]:
        of_user = {name: user[:, [at]] for at, name in enumerate(USER_NAMES)}
        of_treatments = {name: treatments[None, :, [at]] for at, name in enumerate(TREATMENT_NAMES)}
        return of_user | of_treatments


class Examples(Layout):
    """A text tensor with a tf.Example for each treatment, which has the user's features too."""

    name, title = "example", "a tf.Example for each treatment"

    def build(self, directory: Path) -> Path:
        names = [*USER_NAMES, *TREATMENT_NAMES]
        features = {name: tf.io.FixedLenFeature([], tf.float32) for name in names}

        class Model(tf.Module):
            def __init__(self):
                super().__init__()
                self.network = reference_network()

            @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
            def serve(self, examples):
                parsed = tf.io.parse_example(examples, features)
                rows = tf.stack([parsed[name] for name in names], -1)
                # Each row is a user with one treatment.
                return self.network(rows[:, :USER_FEATURES], rows[:, None, USER_FEATURES:])

        model, target = Model(), directory / "saved_model"
        tf.saved_model.save(model, str(target), signatures=model.serve)
        return target

    def tensors(self, user: np.ndarray, treatments: np.ndarray) -> dict[str, Any]:
        return {"examples": [_example(np.concatenate([user[0], row])) for row in treatments]}


def _example(row: np.ndarray) -> bytes:
    example = tf.train.Example()
    for name, value in zip([*USER_NAMES, *TREATMENT_NAMES], row, strict=True):
        example.features.feature[name].float_list.value.append(value)
    return example.SerializeToString()


LAYOUTS: tuple[Layout, ...] = (PerFeature(), Examples(), Packed())
