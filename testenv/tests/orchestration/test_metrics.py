"""A running server exposes the metrics that the reference page declares, so rules and dashboard
find them.
"""

import json
import shutil
import struct
import urllib.request

import grpc
import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import authority, images
from outrigger_testenv.attack import rows
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.chart import prometheus
from outrigger_testenv.chart.cases import CASES
from outrigger_testenv.chart.render import render
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.load import Load
from outrigger_testenv.processes import free_ports
from outrigger_testenv.stack import merge
from outrigger_testenv.tools import needs
from outrigger_testenv.variants import better, good

MODEL = "metrics/tiny"
AGES = range(20, 80)
OFFERS = pd.DataFrame({"price": np.linspace(-3, 3, 7, dtype="float32")})
# A trial that lasts until the test ends.
TRIAL = {"minimum_time": "3600s", "warm_up": {"requests": 200}, "ramp": {"share": 0.3}}

# Those of models with a factorisation machine, which no server of this test has.
MACHINES = {
    f"{platform}{part}_predict"
    for platform in ("alphafm", "alphafm_softmax")
    for part in ("", "_xgboost")
}


def scrape(stack):
    """The samples of the server's metrics, by family."""
    status, text = stack.serve.get("/metrics")
    assert status == 200
    return prometheus.families(text)


def requests():
    """Requests of many users without a routing key."""
    for age in AGES:
        message = request({"age": age}, OFFERS)
        message.model.CopyFrom(selector(MODEL))
        yield message


def profiled(package, directory):
    """A copy of the package with a profile.json."""
    shutil.copytree(package.directory, directory)
    made = ModelPackage(directory)
    made.write_profile(pd.DataFrame({"age": AGES}), OFFERS)
    return made


@pytest.fixture
def stack(own_stack, tmp_path, needs_registry):
    """A stack with every optional part: TLS on one listener, traces, canaries."""
    needs("openssl")
    made = authority.certificate(tmp_path / "authority", "127.0.0.1")
    tls = {"certificate": str(made.file), "key": str(made.key), "http": "server"}
    plain = dict.fromkeys(("grpc", "health", "admin"), "plain")
    return own_stack(
        overrides={
            "tls": tls | plain,
            # No collector is needed: spans that cannot be sent are counted too.
            "traces": {"endpoint": "http://127.0.0.1:9"},
            "canary": {"defaults": TRIAL},
        }
    )


@pytest.fixture
def further(own_stack, tmp_path):
    """A stack with the listeners of further protocols and a batcher, which has answered one request
    over each.
    """
    listeners = ("xgboost_serving", "oip")
    addresses = [f"127.0.0.1:{port}" for port in free_ports(len(listeners))]
    stack = own_stack(
        engine=False,
        overrides={
            "server": dict(zip(listeners, addresses, strict=True)),
            "engines": {"trees": {"batcher": {}}},
        },
    )
    stack.push(rows.package(tmp_path / "rows"), rows.MODEL)
    of_rows, of_tensors = addresses
    row = {"feature_score": {"id": [1], "score": [2]}}
    post(of_rows, f"/v1/models/{rows.MODEL}:predict", {"xgboost_features": [row]})
    with grpc.insecure_channel(of_rows) as channel:
        message = rows.request(rows.row(b"\x01", struct.pack("<f", 2)))
        channel.unary_unary(rows.PREDICT)(message, timeout=30)
    tensors = [("", "INT64", 1), ("_weights", "FP32", 2), ("_lengths", "INT64", 1)]
    inputs = [
        {"name": f"xgboost_features{end}", "datatype": datatype, "shape": [1], "data": [value]}
        for end, datatype, value in tensors
    ]
    post(of_tensors, f"/v2/models/{rows.MODEL}/infer", {"inputs": inputs})
    return stack


def post(address, path, body):
    """Posts a document, which must be answered."""
    url = f"http://{address}{path}"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as answer:
        assert answer.status == 200


def used(stack, package, tmp_path):
    """The server's samples with a canary on trial, and after failures."""
    first = stack.push(profiled(package(good), tmp_path / "live"), MODEL)
    client = stack.client()
    client.load(MODEL)
    images.push_layers(stack.registry, "models/metrics/broken", "latest", [images.tar({})])
    for broken in (lambda: client.load("metrics/broken"), lambda: client.load("metrics/nobody")):
        with pytest.raises(OutriggerError):
            broken()
    with Load(stack.serve.target, requests(), tmp_path, concurrency=2) as load:
        load.wait_for(first)
        canary = profiled(package(better), tmp_path / "canary")
        load.wait_for(stack.push(canary, MODEL, "latest_canary"))
        # Features are compared once a second, with the trial.
        stack.serve.process.wait_until(lambda: "outrigger_canary_skew" in scrape(stack), 60)
        return scrape(stack)


def test_an_unused_server_exposes_the_series_known_at_the_start(own_stack):
    assert set(scrape(own_stack())) == set(prometheus.declared()) - set(prometheus.LATER)


def test_servers_in_use_expose_all_declared_and_all_queried_metrics(
    stack, further, package, tmp_path
):
    declared, scraped = prometheus.declared(), used(stack, package, tmp_path)
    for family, samples in scrape(further).items():
        scraped[family] = scraped.get(family, []) + samples
    assert set(scraped) == set(declared) - MACHINES
    for family, samples in scraped.items():
        for labels in samples:
            assert set(labels) - {"le"} == declared[family], family
    for asked in selectors():
        if asked.family not in MACHINES:
            assert any(asked.accepts(labels) for labels in scraped[asked.family]), asked


def selectors():
    """The selectors of the rules and the dashboard."""
    values = {"monitoring": {"rules": {"disabled": []}}}
    everything = render(merge(CASES["everything"].values, values))
    board = prometheus.dashboard(everything)
    queries = [
        *(alert["expr"] for alert in prometheus.alerts(everything)),
        *prometheus.dashboard_queries(board),
        *prometheus.dashboard_variables(board),
    ]
    for asked in (each for query in queries for each in prometheus.selectors(query)):
        ways_to_fail = any(label == "reason" for label, _, _ in asked.matchers)
        # A series of a failure exists only after the failure.
        if not (ways_to_fail and asked.family == "outrigger_requests_total"):
            yield asked
