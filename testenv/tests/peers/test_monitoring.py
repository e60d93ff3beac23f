"""Monitoring with a real Prometheus, and a collector with OpenTelemetry's messages."""

import grpc
import pandas as pd
import pytest
import yaml

from outrigger_testenv import monitoring
from outrigger_testenv.chart.render import CHART
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.processes import free_ports
from outrigger_testenv.tools import needs

MODEL = "monitoring/tiny"
USERS = pd.DataFrame({"age": [30]})
OFFERS = pd.DataFrame({"price": [1.0, 2.0, 3.0]})
REQUESTS = 7

PREDICT = "/outrigger.v1.PredictionService/Predict"
SERVER = PREDICT.removeprefix("/")
ENGINE = "engine"
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def prometheus(tmp_path):
    """Makes a Prometheus that scrapes a stack's server."""
    needs("prometheus")
    made = []

    def make(stack):
        target = stack.serve.health.removeprefix("http://")
        made.append(monitoring.Prometheus(tmp_path / "prometheus", free_ports(1)[0], target))
        return made[-1].__enter__()

    yield make
    for each in made:
        each.__exit__()


def test_prometheus_answers_the_operators_queries(own_stack, tiny, prometheus):
    stack = own_stack()
    client = stack.client()
    digest = stack.push(tiny(4), MODEL)
    watched = prometheus(stack)
    watched.wait_for('up{job="outrigger"}', 1)
    client.load(MODEL)
    for _ in range(REQUESTS):
        client.predict(MODEL, USERS, OFFERS)
    with pytest.raises(OutriggerError):
        client.predict(MODEL, USERS, pd.DataFrame({"price": ["cheap"]}))
    with pytest.raises(OutriggerError):
        client.predict("monitoring/nobody", USERS, OFFERS)

    ours = f'model="{MODEL}",arm="live"'
    watched.wait_for(
        f'sum(outrigger_requests_total{{{ours},method="batch_predict",reason="OK"}})', REQUESTS
    )
    watched.wait_for('sum(outrigger_requests_total{model="",reason="MODEL_NOT_FOUND"})', 1)
    assert watched.query(f'outrigger_requests_total{{{ours},reason="FEATURE_TYPE"}} == 1')
    for stage in ("queue", "decode", "engine", "encode"):
        seconds = f'outrigger_request_stage_duration_seconds_count{{stage="{stage}",{ours}}}'
        assert watched.value(f"sum({seconds})") >= REQUESTS, stage
    treatments = "outrigger_request_treatments_{}{{" + ours + "}}"
    assert watched.value(f"{treatments.format('sum')} / {treatments.format('count')}") == 3
    scores = "outrigger_request_score_{}{{" + ours + "}}"
    assert watched.value(f"{scores.format('sum')} / {scores.format('count')}") == 4
    buckets = f"histogram_quantile(0.5, {scores.format('bucket')})"
    assert 2 < watched.value(buckets) <= 5
    memory = watched.value(f'outrigger_model_memory_bytes{{model="{MODEL}",digest="{digest}"}}')
    assert memory > 0
    assert watched.value('sum(outrigger_model_cache_total{kind="tree",result="miss"})') >= 1
    assert watched.value('outrigger_store_size_bytes{kind="tree"}') > 0, "with what came last"
    assert watched.query('outrigger_build_info{version!="",revision!="",rustc=~"1[.].+"} == 1')
    assert watched.value("process_resident_memory_bytes") > 1 << 20
    assert watched.value("time() - process_start_time_seconds") > 0
    assert not watched.query('{__name__=~".+",model="monitoring/nobody"}')

    rules = yaml.safe_load((CHART / "monitoring" / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        firing = watched.query(rule["expr"])
        # These two alerts see the counters' first increments as an increase.
        if rule["alert"] not in ("OutriggerModelFailing", "OutriggerRequestsFailing"):
            assert firing == [], rule["alert"]


def test_traces_reach_a_collector_with_the_caller_s_context(own_stack, tiny):
    with monitoring.Collector() as collector:
        traces = {"endpoint": collector.endpoint, "ratio": 0, "service": "scores"}
        stack = own_stack(overrides={"traces": traces})
        stack.push(tiny(4), MODEL)
        stack.client().load(MODEL)
        life = collector.trace("bring up")
        whole, pull = life.pop("bring up"), life["pull"]
        steps, parts = (
            {"pull", "prepare", "publish", "load", "gate"},
            {"resolve", "layer", "unpack"},
        )
        assert set(life) == steps | parts
        assert whole.parent == ""
        assert {life[name].parent for name in steps} == {whole.id}
        assert {life[name].parent for name in parts} == {pull.id}

        message = request({"age": 30}, OFFERS)
        message.model.CopyFrom(selector(MODEL))
        context = [("traceparent", f"00-{TRACE}-{CALLER}-01")]
        with grpc.insecure_channel(stack.serve.target) as channel:
            predict = channel.unary_unary(PREDICT, request_serializer=bytes)
            predict(message.SerializeToString(), metadata=context, timeout=30)
        spans = collector.trace(SERVER)
        assert set(spans) == {SERVER, "queue", "decode", ENGINE, "encode"}
        server = spans.pop(SERVER)
        assert (server.trace, server.parent) == (TRACE, CALLER)
        assert (server.kind, server.error) == ("SPAN_KIND_SERVER", None)
        assert server.attributes["outrigger.model.name"] == MODEL
        assert server.resource["service.name"] == "scores"
        assert {each.parent for each in spans.values()} == {server.id}
        assert spans[ENGINE].kind == "SPAN_KIND_CLIENT"
        assert spans[ENGINE].attributes["outrigger.engine"] == "default"
        assert spans[ENGINE].attributes["outrigger.treatments"] == 3
