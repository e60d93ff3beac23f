"""The four calls that the control plane makes to an engine, with their answers as text."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2

# Limit of a call that should be answered, in seconds.
TIMEOUT = 30.0
SIGNATURES = "signature_def"

Inputs = Mapping[str, Any]
Spec = model_pb2.ModelSpec
Config = model_server_config_pb2.ModelServerConfig
State = get_model_status_pb2.ModelVersionStatus


class EngineClient:
    """A connection to an engine."""

    def __init__(self, address: str):
        self._channel = grpc.insecure_channel(address)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def close(self) -> None:
        """Closes the connection. Calls in progress fail."""
        self._channel.close()

    def predict(
        self,
        spec: Spec | None,
        inputs: Inputs,
        outputs: Iterable[str] = (),
        timeout: float = TIMEOUT,
    ) -> grpc.Future:
        """Begins a Predict call. Inputs are arrays or TensorProtos by alias."""
        request = predict_pb2.PredictRequest(model_spec=spec, output_filter=outputs)
        for alias, value in inputs.items():
            request.inputs[alias].CopyFrom(_encoded(value))
        return self.send(request, timeout)

    def send(self, request: predict_pb2.PredictRequest, timeout: float = TIMEOUT) -> grpc.Future:
        """Begins a Predict call with a request."""
        return self._predictions.Predict.future(request, timeout=timeout)

    def metadata(
        self, spec: Spec | None, fields: Iterable[str] = (SIGNATURES,)
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Calls GetModelMetadata."""
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=spec, metadata_field=fields
        )
        return self._predictions.GetModelMetadata(request, timeout=TIMEOUT)

    def status(self, spec: Spec | None) -> list[State]:
        """Calls GetModelStatus; returns the versions in the engine's order."""
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
        return list(self._models.GetModelStatus(request, timeout=TIMEOUT).model_version_status)

    def reload(
        self,
        config: Config | None,
        metrics: Iterable[str] = (),
        timeout: float = TIMEOUT,
    ) -> grpc.Future:
        """Begins a HandleReloadConfigRequest call."""
        request = model_management_pb2.ReloadConfigRequest(config=config, metric_names=metrics)
        return self._models.HandleReloadConfigRequest.future(request, timeout=timeout)


def outcome(act: Callable[[], str]) -> str:
    """The result of an act, or the code and message of the call that failed in it."""
    try:
        return act()
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"


def finished(call: grpc.Future, timeout: float | None = None) -> str:
    """Waits for a call: "OK", or its code and message. Raises grpc.FutureTimeoutError if it is not
    answered within `timeout` seconds.
    """

    def result() -> str:
        call.result(timeout)
        return "OK"

    return outcome(result)


def predicted(answer: predict_pb2.PredictResponse) -> str:
    """The outputs of an answer by alias, and the model that gave it."""
    spec = answer.model_spec
    outputs = (
        f"{alias}={tf.make_ndarray(answer.outputs[alias]).tolist()}"
        for alias in sorted(answer.outputs)
    )
    by = f"{spec.name} {spec.version.value}{spec.version_label} {spec.signature_name}"
    return f"{' '.join(outputs)} by {by}"


def state(version: State) -> str:
    """A version's number, its state and its error, if it has one."""
    text = f"{version.version} {State.State.Name(version.state)}"
    if not version.status.error_code and not version.status.error_message:
        return text
    code = next(each for each in grpc.StatusCode if each.value[0] == version.status.error_code)
    return f"{text} {code.name}: {version.status.error_message}"


def _encoded(value: Any) -> tensor_pb2.TensorProto:
    if isinstance(value, tensor_pb2.TensorProto):
        return value
    is_text = np.asarray(value).dtype.kind == "U"
    return tf.make_tensor_proto(value, tf.string if is_text else tf.float32)
