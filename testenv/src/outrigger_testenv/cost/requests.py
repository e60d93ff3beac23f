"""The requests that are counted, each with the model that answers it."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv import campaign, campaign_trees, reference, requests, xgboost_serving
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import selector
from outrigger_testenv.cost.connections import Grpc, Http

REFERENCE, TREES, SPARSE = "reference", "trees", "sparse"
# Treatments of a request with columns, and of the forms whose messages are larger.
_MANY, _FEW = 1000, 200
_PREDICT = "outrigger.v1.PredictionService/Predict"
_INFER = "inference.GRPCInferenceService/ModelInfer"
_ROWS, _IDS = 100, 12
# Customers of the training data, trees, and columns of the sparse model.
_CUSTOMERS, _TREES, _COLUMNS = 2000, 60, 40


@dataclass(frozen=True)
class Request:
    """A request that a listener answers, and how often a window repeats it."""

    name: str
    listener: str
    connect: Callable[[str], Grpc | Http]
    message: Callable[[], bytes]
    count: int = 3

    @contextmanager
    def sender(self, listeners: Mapping[str, str]) -> Iterator[Callable[[], None]]:
        """Connects, and yields a function that sends the request and waits for its answer."""
        message = self.message()
        connection = self.connect(listeners[self.listener])
        with closing(connection):
            yield lambda: connection(message)


def _frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    return reference.reference_frames(1, _MANY)


def _columnar() -> bytes:
    users, treatments = _frames()
    return _predict(REFERENCE, users.iloc[0], treatment_table=requests.table(treatments))


def _key_value() -> bytes:
    users, treatments = _frames()
    rows = requests.treatments(treatments.iloc[:_FEW])
    return _predict(REFERENCE, users.iloc[0], treatments=rows)


def _json() -> bytes:
    users, treatments = _frames()
    rows = treatments.iloc[:_FEW].astype("f8")
    offers = [
        {"id": str(label), "features": dict(row)}
        for label, row in zip(rows.index, rows.to_dict("records"), strict=True)
    ]
    user = users.iloc[0].astype("f8").to_dict()
    return json.dumps({"model": {"name": REFERENCE}, "user": user, "treatments": offers}).encode()


def _predict(model: str, user: Any, **fields: Any) -> bytes:
    features = requests.user_features(user.to_dict())
    request = pb.PredictRequest(model=selector(model), user_features=features, **fields)
    return request.SerializeToString(deterministic=True)


def _dense() -> bytes:
    customers = campaign.generate(_CUSTOMERS).customers
    offers = pd.concat([campaign.OFFERS] * (_FEW // len(campaign.OFFERS)))
    offers.index = [f"offer-{at}" for at in range(len(offers))]
    return _predict(TREES, customers.iloc[0], treatment_table=requests.table(offers))


def _tensor() -> np.ndarray:
    draw = np.random.default_rng(1)
    return draw.normal(size=(_FEW, len(campaign_trees.COLUMNS))).astype("<f4")


def _oip_grpc() -> bytes:
    from inference import inference_pb2

    values = _tensor()
    request = inference_pb2.ModelInferRequest(model_name=TREES)
    request.inputs.add(name="features", datatype="FP32", shape=values.shape)
    request.raw_input_contents.append(values.tobytes())
    return request.SerializeToString(deterministic=True)


def _oip_head() -> bytes:
    values = _tensor()
    tensor = {"name": "features", "datatype": "FP32", "shape": list(values.shape)}
    tensor["parameters"] = {"binary_data_size": values.nbytes}
    document = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    return json.dumps(document).encode()


def _oip_binary() -> bytes:
    return _oip_head() + _tensor().tobytes()


def _oip_http(address: str) -> Http:
    length = {"inference-header-content-length": str(len(_oip_head()))}
    return Http(
        address,
        f"/v2/models/{TREES}/infer",
        {"content-type": "application/octet-stream", **length},
    )


def _sparse() -> bytes:
    draw = np.random.default_rng(3)
    request = xgboost_serving.message("PredictRequest")()
    request.model_spec.name = SPARSE
    vector = request.inputs["xgboost_features"]
    for _ in range(_ROWS):
        row = vector.feature_score.add()
        row.id.extend(int(id) for id in draw.permutation(_COLUMNS)[:_IDS])
        row.score.extend(draw.normal(size=_IDS).astype("f4").tolist())
    return request.SerializeToString(deterministic=True)


def _grpc(method: str, like_go: bool = False) -> Callable[[str], Grpc]:
    return lambda address: Grpc(address, method, like_go)


THROUGH_ENGINE = (
    Request("grpc-columnar", "grpc", _grpc(_PREDICT), _columnar),
    Request("grpc-columnar-16k", "grpc", _grpc(_PREDICT, True), _columnar),
    Request("grpc-key-value", "grpc", _grpc(_PREDICT), _key_value),
    Request("json", "http", lambda address: Http(address, "/v1/predict"), _json),
)
"""Requests to the reference model, which TensorFlow runs in a process of its own."""

OF_TREES = (
    Request("trees", "grpc", _grpc(_PREDICT), _dense),
    Request("oip-grpc", "oip", _grpc(_INFER), _oip_grpc),
    Request("oip-binary", "oip", _oip_http, _oip_binary),
    Request(
        "xgboost-serving",
        "xgboost_serving",
        _grpc("tensorflow.serving.PredictionService/Predict"),
        _sparse,
    ),
)
"""Requests to models of trees, which the control plane runs."""


def reference_package(directory: Path) -> ModelPackage:
    """The package of the reference model."""
    return reference.reference_model(directory)


def trees_package(directory: Path) -> ModelPackage:
    """The package of the model of trees with dense rows."""
    table = campaign.generate(_CUSTOMERS)
    return campaign_trees.train(table, directory, "1", rounds=_TREES)


def sparse_package(directory: Path) -> ModelPackage:
    """The package of the model of trees with sparse rows."""
    write_sparse(directory)
    (directory / "xgboost").mkdir()
    (directory / "deploy.model").rename(directory / "xgboost" / "deploy.model")
    return ModelPackage(directory)


def write_sparse(directory: Path) -> None:
    """Writes a version of the model of trees with sparse rows."""
    import scipy.sparse
    import xgboost

    draw = np.random.default_rng(1)
    table = scipy.sparse.random(_CUSTOMERS, _COLUMNS, 0.3, "csr", "f4", draw, draw.standard_normal)
    labels = np.asarray(table.sum(axis=1)).ravel() > 0
    parameters = {"objective": "binary:logistic", "max_depth": 4}
    booster = xgboost.train(parameters, xgboost.DMatrix(table, labels), _TREES)
    xgboost_serving.write_trees(booster, directory)
