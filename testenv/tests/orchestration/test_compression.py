"""Compressed requests and answers, with gRPC's C core and Python's HTTP client."""

import gzip
import json
import urllib.request
from urllib.error import HTTPError

import grpc
import pytest

from outrigger.v1 import model_pb2, model_pb2_grpc, prediction_pb2_grpc
from outrigger_testenv import requests
from outrigger_testenv.client import channel_options, request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.jsonform import http_request
from outrigger_testenv.reference import reference_frames
from outrigger_testenv.stack import Stack

MODEL = "compression/reference"


@pytest.fixture(scope="module")
def both(reference):
    """A stack that takes compressed requests and compresses answers, and serves the model."""
    with Stack(overrides={"server": {"compression": "both"}}) as stack:
        digest = stack.push(reference, MODEL)
        with stack.client() as client:
            client.load(MODEL)
            client.wait_until_serving(MODEL, digest)
        yield stack


@pytest.fixture
def compressing(both):
    """A channel that compresses all its calls."""
    target = both.serve.target
    with grpc.insecure_channel(target, channel_options(target), grpc.Compression.Gzip) as channel:
        yield channel


def message(form):
    users, treatments = reference_frames(1, 1000)
    made = request(next(requests.rows(users)), treatments, form)
    made.model.CopyFrom(selector(MODEL))
    return made


def document():
    users, treatments = reference_frames(1, 1000)
    return {"model": {"name": MODEL}, **http_request(users.iloc[0], treatments)}


def post(stack, body, **headers):
    """The headers and the body of the answer."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = urllib.request.Request(f"{stack.serve.http}/v1/predict", body, names)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return answer.headers, answer.read()


@pytest.mark.parametrize("form", [requests.TABLE, requests.KEY_VALUE])
def test_the_c_core_gets_the_same_scores_compressed(both, compressing, form):
    with both.client() as client:
        plain = client.call(message(form))
    answer = prediction_pb2_grpc.PredictionServiceStub(compressing).Predict(message(form))
    assert answer.scores.values == plain.scores.values


def test_a_channel_that_compresses_can_ask_for_models(compressing):
    models = model_pb2_grpc.ModelServiceStub(compressing)
    # Long enough that the C core compresses it.
    query = model_pb2.GetModelRequest(name="x" * 200)
    with pytest.raises(grpc.RpcError) as caught:
        models.GetModel(query)
    assert OutriggerError.from_rpc(caught.value).reason == "MODEL_NOT_FOUND"
    assert models.GetModel(model_pb2.GetModelRequest(name=MODEL)).model.name == MODEL


def test_python_gets_the_same_json_compressed(both):
    body = json.dumps(document()).encode()
    headers, plain = post(both, body)
    assert headers["content-encoding"] is None
    headers, answer = post(both, gzip.compress(body), content_encoding="gzip")
    assert answer == plain
    headers, answer = post(both, body, accept_encoding="gzip")
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer) == plain
    assert len(answer) < len(plain)


def test_another_encoding_is_refused_with_those_that_are_accepted(both):
    with pytest.raises(HTTPError) as caught:
        post(both, b"{}", content_encoding="br")
    assert caught.value.code == 415
    assert caught.value.headers["accept-encoding"] == "identity, gzip, zstd, deflate"
    assert json.load(caught.value)["error"]["reason"] == "ENCODING_UNSUPPORTED"
