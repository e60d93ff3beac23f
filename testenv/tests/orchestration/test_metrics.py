"""A running server exposes the metrics that the reference page declares, so rules and dashboard
find them.
"""

import shutil

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import authority, images
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.chart import prometheus
from outrigger_testenv.chart.cases import CASES
from outrigger_testenv.chart.render import render
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.load import Load
from outrigger_testenv.stack import merge
from outrigger_testenv.tools import needs
from outrigger_testenv.variants import better, good

MODEL = "metrics/tiny"
AGES = range(20, 80)
OFFERS = pd.DataFrame({"price": np.linspace(-3, 3, 7, dtype="float32")})
# A trial that lasts until the test ends.
TRIAL = {"minimum_time": "3600s", "warm_up": {"requests": 200}, "ramp": {"share": 0.3}}


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


def test_a_server_in_use_exposes_all_declared_and_all_queried_metrics(stack, package, tmp_path):
    declared, scraped = prometheus.declared(), used(stack, package, tmp_path)
    # Neither is a part of this server.
    without = {prometheus.BATCHER, prometheus.ROWS}
    absent = {family for family, waits in prometheus.LATER.items() if waits in without}
    assert set(scraped) == set(declared) - absent
    for family, samples in scraped.items():
        for labels in samples:
            assert set(labels) - {"le"} == declared[family], family
    for asked in selectors():
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
