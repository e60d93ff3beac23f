"""Makes model packages: the model, metadata.json and further files.

Models are TensorFlow functions, or boosters of XGBoost, LightGBM or CatBoost.
"""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv import boosters, libraries, machines, onnxfiles
from outrigger_testenv.binary import outrigger
from outrigger_testenv.features import (
    JOINED,
    PER_TREATMENT,
    SEED,
    TREATMENT_COUNT,
    USER,
    Feature,
    Input,
    Metadata,
    Output,
)
from outrigger_testenv.jsonform import http_request
from outrigger_testenv.packing import Treatments, constants, pack
from outrigger_testenv.profile import profile
from outrigger_testenv.requests import rows
from outrigger_testenv.uplift import SLearner, TLearner

SAVED_MODEL = Path("tensorflow_serving_model", "model")


class ModelPackage:
    """A directory that mirrors an image's /data, ready to be pushed. `function` computes the
    outputs of a model that no library here runs.
    """

    def __init__(
        self,
        directory: Path,
        function: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]] | None = None,
    ):
        self.directory = Path(directory)
        self.metadata = Metadata.read(self.directory)
        self._function = function

    @property
    def saved_model(self) -> Path:
        """The directory of saved_model.pb, which may be one level down in a numeric directory."""
        top = self.directory / SAVED_MODEL
        if (top / "saved_model.pb").is_file():
            return top
        numbered = [
            each.parent for each in top.glob("*/saved_model.pb") if each.parent.name.isdigit()
        ]
        if not numbered:
            raise FileNotFoundError(f"no saved_model.pb under {top}")
        return max(numbered, key=lambda each: int(each.name))

    def run(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of the model's own library for packed tensors, by output tensor."""
        if self._function is None:
            self._function = self._library()
        return self._function(tensors)

    def _library(self) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
        framework = self.metadata.framework
        if framework in machines.FRAMEWORKS:
            return machines.function(self.directory, framework)
        if framework in boosters.FRAMEWORKS:
            return boosters.function(
                self.directory, [each.tensor for each in self.metadata.outputs]
            )
        if framework == onnxfiles.FRAMEWORK:
            return onnxfiles.function(self.directory)
        return self._signature()

    def _signature(self) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
        import tensorflow as tf

        loaded = tf.saved_model.load(str(self.saved_model))

        def call(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            # The signature alone would not keep the loaded model alive.
            answer = loaded.signatures[self.metadata.signature](**constants(tensors))
            return {name: tensor.numpy() for name, tensor in answer.items()}

        return call

    def score(self, users: pd.DataFrame, treatments: Treatments) -> list[np.ndarray]:
        """The library's scores (the score column of the first output), one array per user."""
        column = self.metadata.outputs[0].score_column
        return [values[:, column] for values in self.values(users, treatments)]

    def values(self, users: pd.DataFrame, treatments: Treatments) -> list[np.ndarray]:
        """The library's values of the first output, one array [rows, width] per user."""
        tensors = pack(self.metadata, users, treatments)
        output = self.metadata.outputs[0]
        values = self.run(tensors)[output.tensor]
        shared = isinstance(treatments, pd.DataFrame)
        sizes = [len(treatments)] * len(users) if shared else [len(frame) for frame in treatments]
        if self.metadata.is_joined:
            return np.split(values.reshape(-1, output.width), np.cumsum(sizes)[:-1])
        values = values.reshape(len(users), -1, output.width)
        if output.kind != PER_TREATMENT:
            return list(values)
        return [rows[:size] for rows, size in zip(values, sizes, strict=True)]

    def write_golden(
        self,
        users: pd.DataFrame,
        treatments: Treatments,
        rtol: float = 1e-4,
        atol: float = 1e-5,
    ) -> None:
        """Writes the library's scores as golden cases, one per user; of an output with several
        columns, all of them.
        """
        shared = isinstance(treatments, pd.DataFrame)
        output = self.metadata.outputs[0]
        with (self.directory / "golden.jsonl").open("w", encoding="utf-8") as lines:
            for at, user in enumerate(rows(users)):
                offered = treatments if shared else treatments[at]
                values = self.values(users.iloc[at : at + 1], [offered])[0]
                scores = (values if output.width > 1 else values[:, 0]).tolist()
                single = output.kind != PER_TREATMENT
                case = {
                    "request": http_request(user, offered),
                    "expected": {"score": scores[0]} if single else {"scores": scores},
                    "rtol": rtol,
                    "atol": atol,
                }
                lines.write(json.dumps(case) + "\n")

    def write_profile(self, users: pd.DataFrame, treatments: pd.DataFrame) -> None:
        """Writes the profile of the features at training: one row per user, one per treatment."""
        content = json.dumps(profile(self.metadata, users, treatments), indent=2)
        (self.directory / "profile.json").write_text(content + "\n", encoding="utf-8")

    def push(
        self,
        reference: str,
        labels: Mapping[str, str] | None = None,
        plain_http: Sequence[str] = (),
    ) -> str:
        """Runs `outrigger push` and returns the digest. `plain_http` lists hosts without TLS."""
        command = [str(outrigger()), "push", str(self.directory), reference, "-o", "json"]
        for name, value in (labels or {}).items():
            command += ["--label", f"{name}={value}"]
        for host in plain_http:
            command += ["--plain-http", host]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            problem = done.stderr.strip()
            raise RuntimeError(f"push {reference} failed ({done.returncode}): {problem}")
        return json.loads(done.stdout)["digest"]


class ModelBuilder:
    """Builds packages with one feature list.

    The model function takes the input tensors by keyword (a Keras model: as one dict), and returns
    its outputs by tensor name, or its only output.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        outputs: Sequence[Output] = (Output("scores", "score"),),
        signature: str = "serving_default",
        annotations: Mapping[str, str] | None = None,
        *,
        deterministic: bool = True,
    ):
        self.metadata = Metadata(
            tuple(inputs), tuple(outputs), signature, dict(annotations or {}), deterministic
        )

    def specs(self) -> dict[str, Any]:
        """The signature's inputs, of shapes [B, width], [B, T, width] and [B]; of an input with
        lengths, [N] and [B] or [B, T]; of its weights [N].
        """
        import tensorflow as tf

        def shape(each: Input) -> list[int | None]:
            if each.entity in (TREATMENT_COUNT, SEED):
                return [None]
            if each.lengths is not None:
                return [None]
            return [None, each.width] if each.entity == USER else [None, None, each.width]

        specs = {
            each.tensor: tf.TensorSpec(shape(each), tf.as_dtype(each.dtype), each.tensor)
            for each in self.metadata.inputs
        }
        for each in self.metadata.inputs:
            if each.lengths is not None:
                rows = [None] if each.entity == USER else [None, None]
                specs[each.lengths] = tf.TensorSpec(rows, tf.int64, each.lengths)
            if each.weights is not None:
                specs[each.weights] = tf.TensorSpec([None], tf.float32, each.weights)
        return specs

    def build(
        self,
        model: Callable[..., Any],
        directory: Path,
        golden: tuple[pd.DataFrame, Treatments] | None = None,
    ) -> ModelPackage:
        """Exports a function, tf.Module or Keras model into `directory`, which mirrors an image's
        /data.
        """
        import tensorflow as tf

        target = Path(directory) / SAVED_MODEL
        target.parent.mkdir(parents=True, exist_ok=True)
        holder = tf.Module()
        holder.model = model if isinstance(model, tf.Module | tf.keras.Model) else None
        signature = self._signature(model)
        # Keras does not hand over all variables of its layers.
        holder.used = list(signature.variables)
        holder.signature = signature
        tf.saved_model.save(holder, str(target), signatures={self.metadata.signature: signature})
        self.metadata.write(Path(directory))
        package = ModelPackage(directory)
        if golden is not None:
            package.write_golden(*golden)
        return package

    def _signature(self, model: Callable[..., Any]) -> Any:
        import tensorflow as tf

        takes_dict = isinstance(model, tf.keras.Model)

        @tf.function
        def serve(**inputs: Any) -> dict[str, Any]:
            answer = model(inputs) if takes_dict else model(**inputs)
            if not isinstance(answer, Mapping):
                answer = {self.metadata.outputs[0].tensor: answer}
            return dict(answer)

        return serve.get_concrete_function(**self.specs())


def machine_package(
    booster: Any,
    machine: machines.Machine,
    inputs: Sequence[Input],
    directory: Path,
    *,
    output: str = "score",
    score_column: int = 0,
    precision: str | None = None,
    golden: tuple[pd.DataFrame, Treatments] | None = None,
) -> ModelPackage:
    """Writes a booster, and a factorisation machine over its leaves, into `directory`, which
    mirrors an image's /data.

    `inputs` are the sparse inputs `xgboost_features` and, if there are any, `fm_features`. `output`
    is `score` or `margin`, with a column for each class, of which `score_column` is the score.
    `precision` is written to options.json.
    """
    width = len(machine.bias)
    metadata = Metadata(
        tuple(inputs),
        (Output(output, "score", width=width, score_column=score_column),),
        framework=machine.framework,
    )
    machines.write(booster, machine, directory, precision=precision)
    metadata.write(Path(directory))
    package = ModelPackage(directory)
    if golden is not None:
        package.write_golden(*golden)
    return package


def tree_package(
    booster: Any,
    features: Sequence[Feature],
    directory: Path,
    *,
    file: str | None = None,
    output: str = "value",
    width: int = 1,
    score_column: int = 0,
    iterations: str | Sequence[int] | None = None,
    missing: float | None = None,
    uplift: SLearner | TLearner | None = None,
    annotations: Mapping[str, str] | None = None,
    golden: tuple[pd.DataFrame, Treatments] | None = None,
) -> ModelPackage:
    """Writes a booster into `directory`, which mirrors an image's /data. Its library decides the
    framework, and the name and format of its file; that of XGBoost may be called `file`.

    `features` are the booster's columns in order, each with its entity. `output` is `value`,
    `margin` or `leaf`; with `uplift`, which makes an uplift model of the booster, `value_uplift`
    and others. `width` is its number of columns (classes, targets or trees), of which
    `score_column` is the score. `iterations` ("best", or the first one and the one after the last)
    and `missing` are written to options.json.
    """
    inputs = (Input(boosters.FEATURES, JOINED, "float32", tuple(features)),)
    if uplift is not None:
        inputs += uplift.inputs
    metadata = Metadata(
        inputs,
        (Output(output, "score", width=width, score_column=score_column),),
        annotations=dict(annotations or {}),
        framework=libraries.framework(booster),
        uplift=uplift.settings if uplift else None,
    )
    options = {"iterations": iterations, "missing": missing}
    boosters.write(booster, directory, file, options, uplift)
    metadata.write(Path(directory))
    package = ModelPackage(directory)
    if golden is not None:
        package.write_golden(*golden)
    return package
