"""Requests of XGBoost Serving's interface, and the smallest model that answers them."""

import json
from pathlib import Path
from typing import Any

from outrigger_testenv.attack import frames
from outrigger_testenv.attack.messages import field, varint
from outrigger_testenv.attack.wire import call_again, call_in_turn, post_in_turn
from outrigger_testenv.builder import ModelPackage

MODEL, LEAVES = "good/rows", "good/leaves"
# Trees of the model with leaves as an output, which has a number for each tree in each row.
TREES = 20_000
PREDICT = "/tensorflow.serving.PredictionService/Predict"
_FEATURES = b"xgboost_features"


def package(directory: Path) -> ModelPackage:
    """Writes a model of one tree: -1 if the feature 1 is less than 0 or missing, else 1."""
    return _package(directory, METADATA, trees(TREE))


def package_of_leaves(directory: Path) -> ModelPackage:
    """Writes a model of many such trees, whose output is the leaf of each."""
    leaf = {"tensor": "leaf", "name": "leaf", "kind": "per_treatment"}
    leaves = {**leaf, "width": TREES, "score": {"column": 0}}
    return _package(directory, {**METADATA, "outputs": [leaves]}, trees(*[TREE] * TREES))


def _package(directory: Path, metadata: Any, model: Any) -> ModelPackage:
    files = {"metadata.json": metadata, "xgboost/model.json": model}
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(json.dumps(content))
    return ModelPackage(directory)


METADATA = {
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
            "features": [{"name": "all", "entity": "treatment", "max": 100, "default": []}],
        }
    ],
    "outputs": [{"tensor": "value", "name": "value", "kind": "per_treatment"}],
}
TREE = {
    "tree_param": {"num_nodes": "3", "num_feature": "2", "size_leaf_vector": "1"},
    "left_children": [1, -1, -1],
    "right_children": [2, -1, -1],
    "split_indices": [1, 0, 0],
    "split_conditions": [0.0, -1.0, 1.0],
    "default_left": [1, 0, 0],
    "split_type": [0, 0, 0],
    "sum_hessian": [2, 1, 1],
    "categories": [],
    "categories_nodes": [],
    "categories_segments": [],
    "categories_sizes": [],
}


def trees(*each: Any, **more: Any) -> dict[str, Any]:
    """The document of a model of these trees, with further members."""
    count = len(each)
    model = {
        "gbtree_model_param": {"num_trees": str(count), "num_parallel_tree": "1"},
        "iteration_indptr": list(range(count + 1)),
        "tree_info": [0] * count,
        "trees": each,
    }
    learner = {
        "attributes": {},
        "feature_names": [],
        "feature_types": [],
        "objective": {"name": "reg:squarederror"},
        "learner_model_param": {"base_score": "0", "num_feature": "2", "num_class": "0"},
        "gradient_booster": {"name": "gbtree", "model": model},
    }
    return {"version": [2, 1, 4], "learner": learner, **more}


def request(vector: bytes, options: bytes = b"", model: str = MODEL) -> bytes:
    """A PredictRequest whose rows are an encoded FeatureScoreVector."""
    entry = field(1, _FEATURES) + field(2, vector)
    return field(1, field(1, model.encode())) + field(2, entry) + options


def request_of_leaves(count: int) -> bytes:
    """A PredictRequest for the leaves of so many rows."""
    return request(row(b"\x01", _ONE) * count, b"\x18" + varint(2), LEAVES)


def row(ids: bytes, scores: bytes) -> bytes:
    """A row of a FeatureScoreVector, from encoded ids and little-endian scores."""
    return field(1, field(1, ids) + field(2, scores))


_ONE = bytes.fromhex("0000803f")
_INFINITE = bytes.fromhex("0000807f")
# Messages that end XGBoost Serving, or that are none.
_WRONG = [
    request(b""),
    request(row(b"", b"")),
    request(row(b"\x01", _INFINITE)),
    request(row(varint(2**64 - 1), _ONE) + row(varint(2**32 + 1), _ONE)),
    request(row(b"\x01\x02", _ONE)),
    request(row(b"\x01", _ONE * 2)),
    request(row(b"\xff" * 11, _ONE)),
    request(row(b"\x01", b"\x00\x00\x80")),
    # Rows and lists that are longer than their message.
    request(b"\x0a" + varint(2**31) + b"\x01"),
    request(b"\x0a\x03\x0a" + varint(2**63) + b"\x01"),
    request(row(b"\x01", _ONE), b"\x18" + varint(7)),
    request(row(b"\x01", _ONE), b"\x20" + varint(2**32 - 1)),
    field(1, b"") + b"\x12\x00",
    b"",
]


def wrong_rows(address: str, seconds: float) -> None:
    """Calls with messages that end XGBoost Serving, or that are none."""
    messages = [frames.message(each) for each in _WRONG]
    messages += frames.with_wrong_lengths(request(row(b"\x01", _ONE)))
    call_in_turn(address, PREDICT, messages, rate=200, seconds=seconds)


def many_rows(
    address: str, kind: str, size: int, every: float, seconds: float, *, compressed: bool = False
) -> None:
    """Calls of this size: of empty rows, or with one row of short ids, with scores or without; the
    size is that before compression.
    """
    count = size // 5
    vectors = {
        "rows": lambda: b"\x0a\x00" * (size // 2),
        "ids": lambda: row(b"\x01" * size, b""),
        "values": lambda: row(b"\x01" * count, _ONE * count),
    }
    content = request(vectors[kind]())
    call_again(address, PREDICT, content, every=every, seconds=seconds, compressed=compressed)


def many_leaves(address: str, rows_each: int, every: float, seconds: float) -> None:
    """Calls for the leaves of so many rows."""
    call_again(address, PREDICT, request_of_leaves(rows_each), every=every, seconds=seconds)


_ROW = '{"feature_score":{"id":[1],"score":[1]}}'
_DOCUMENTS = [
    "",
    "7",
    "null",
    '{"xgboost_features":7}',
    '{"xgboost_features":{"feature_score":[]}}',
    '{"xgboost_features":[7]}',
    '{"xgboost_features":[{"feature_score":[1]}]}',
    '{"xgboost_features":[{"feature_score":{"id":1,"score":1}}]}',
    '{"xgboost_features":[{"feature_score":{"id":["1"],"score":[1]}}]}',
    '{"xgboost_features":[{"feature_score":{"id":[-1],"score":[1]}}]}',
    '{"xgboost_features":[{"feature_score":{"id":[1],"score":[null]}}]}',
    '{"xgboost_features":[{"feature_score":{"id":[1],"score":[1e39]}}]}',
    '{"xgboost_features":[' + _ROW + '],"option_mask":{}}',
    '{"xgboost_features":[' + _ROW + '],"ntree_limit":1e9}',
    '{"xgboost_features":' + "[" * 100_000,
]


def wrong_documents(address: str, seconds: float) -> None:
    """Posts documents with wrong JSON types."""
    requests = [_posted(each.encode()) for each in _DOCUMENTS]
    post_in_turn(address, requests, rate=100, seconds=seconds, wait=0.05)


def many_rows_as_json(address: str, size: int, every: float, seconds: float) -> None:
    """Posts a document of this size with one row of ids and scores of a digit."""
    count = size // 4
    ids = ",".join(["1"] * count)
    row_of_them = f'{{"feature_score":{{"id":[{ids}],"score":[{ids}]}}}}'
    request = _posted(f'{{"xgboost_features":[{row_of_them}]}}'.encode())
    post_in_turn(address, [request], rate=1 / every, seconds=seconds, wait=every)


def _posted(content: bytes) -> bytes:
    head = (
        f"POST /v1/models/{MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nx-request-timeout: 2s\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content
