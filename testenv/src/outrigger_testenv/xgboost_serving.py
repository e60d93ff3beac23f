"""A client of XGBoost Serving's gRPC interface.

Its messages have names of TensorFlow Serving's, so they are in a pool of their own.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from outrigger_testenv.binary import repository

# A row: ids with their scores.
Row = Iterable[tuple[int, float]]

PREDICT = "Predict"
ALPHAFM = "PredictAlphafm"
SOFTMAX = "PredictAlphafmSoftmax"


@dataclass(frozen=True)
class Answer:
    """The only output of a response, and the version that answered; 0 if it has no number."""

    key: str
    values: np.ndarray
    version: int


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    protos = repository() / "proto"
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "files"
        # In a process of its own: the compiler crashes in one that has loaded other libraries.
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{protos}", "--include_imports"]
        command += [f"--descriptor_set_out={out}", "xgboost_serving/prediction.proto"]
        subprocess.run(command, check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


def message(name: str) -> type[Any]:
    """The class of a message of the package `tensorflow.serving`."""
    found = _pool().FindMessageTypeByName(f"tensorflow.serving.{name}")
    return message_factory.GetMessageClass(found)


class XgboostServing:
    """A connection to the listener. Use it as a context manager."""

    def __init__(self, target: str, timeout: float = 30.0):
        self._channel = grpc.insecure_channel(target)
        self._timeout = timeout

    def __enter__(self) -> "XgboostServing":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def predict(
        self,
        method: str,
        name: str,
        inputs: Mapping[str, Sequence[Row]],
        **options: Any,
    ) -> Answer:
        """Scores rows. `options` are `version` or `label`, `option_mask` and `ntree_limit`."""
        request = message("PredictRequest")()
        _select(request.model_spec, name, options)
        for key, value in options.items():
            setattr(request, key, value)
        for key, rows in inputs.items():
            vector = request.inputs[key]
            for row in rows:
                entries = list(row)
                feature_score = vector.feature_score.add()
                feature_score.id.extend(id for id, _ in entries)
                feature_score.score.extend(score for _, score in entries)
        response = self._call(f"PredictionService/{method}", request, "PredictResponse")
        ((key, tensor),) = response.outputs.items()
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        values = np.array(tensor.uint32_val or tensor.float_val)
        return Answer(key, values.reshape(shape), response.model_spec.version.value)

    def states(self, name: str, **selected: Any) -> dict[int, str]:
        """The states of a model's versions by number."""
        request = message("GetModelStatusRequest")()
        _select(request.model_spec, name, selected)
        response = self._call("ModelService/GetModelStatus", request, "GetModelStatusResponse")
        state = message("ModelVersionStatus").State.Name
        return {each.version: state(each.state) for each in response.model_version_status}

    def reload(self, name: str, versions: Sequence[int] = (), base_path: str = "") -> None:
        """Loads versions of a model, or its default version."""
        request = message("ReloadConfigRequest")()
        config = request.config.model_config_list.config.add(name=name, base_path=base_path)
        config.model_version_policy.specific.versions.extend(versions)
        if not versions:
            config.ClearField("model_version_policy")
        path = "ModelService/HandleReloadConfigRequest"
        self._call(path, request, "ReloadConfigResponse")

    def _call(self, path: str, request: Any, response: str) -> Any:
        call = self._channel.unary_unary(
            f"/tensorflow.serving.{path}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=message(response).FromString,
        )
        return call(request, timeout=self._timeout)


def _select(spec: Any, name: str, options: dict[str, Any]) -> None:
    """Selects a version, by options that it takes out."""
    spec.name = name
    if (version := options.pop("version", None)) is not None:
        spec.version.value = version
    if (label := options.pop("label", None)) is not None:
        spec.version_label = label


def write_trees(booster: Any, directory: Path) -> None:
    """Writes a version of XGBoost Serving's files, with metadata.json beside them."""
    directory.mkdir(parents=True)
    booster.save_model(directory / "model.ubj")
    (directory / "model.ubj").rename(directory / "deploy.model")
    trees = len(booster.get_dump())
    leaf = {"width": trees, "score": {"column": 0}}
    outputs = [("value", {}), ("margin", {}), ("leaf", leaf)]
    metadata = {
        "schema": "outrigger.dev/model/v1",
        "framework": "xgboost",
        "signature": "sparse",
        "inputs": [
            {
                "tensor": "xgboost_features",
                "weights": "xgboost_features_weights",
                "lengths": "xgboost_features_lengths",
                "entity": "joined",
                "dtype": "int64",
                "features": [{"name": "all", "entity": "treatment", "max": 50, "default": []}],
            }
        ],
        "outputs": [
            {"tensor": name, "name": name, "kind": "per_treatment", **more}
            for name, more in outputs
        ],
    }
    (directory / "metadata.json").write_text(json.dumps(metadata))
