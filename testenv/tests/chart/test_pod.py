"""The pod runs: its two processes with the arguments, environment, paths and user rendered."""

import json
import subprocess
import tempfile
import threading
import urllib.request
from pathlib import Path

import pytest

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv import variants
from outrigger_testenv.binary import outrigger
from outrigger_testenv.chart import prometheus
from outrigger_testenv.chart.cases import CASES
from outrigger_testenv.chart.pod import LocalPod
from outrigger_testenv.chart.render import render
from outrigger_testenv.chart.user import ARBITRARY_USER, may_change_user
from outrigger_testenv.client import Client, selector
from outrigger_testenv.stack import merge

REQUEST = {
    "model": {"name": "churn"},
    "user": {"age": 30},
    "treatments": [{"id": "a", "features": {"price": 1.5}}],
}
# A baseline brings the model, so that no registry is needed; a Secret, so that its place is tried.
PRELOADED = {
    "config": {"models": [{"name": "churn", "image": "oci:/baseline/churn", "preload": True}]},
    "baseline": {"reference": "registry.example/baseline:1"},
    "registry": {"existingSecret": "credentials"},
    "drain": {"delaySeconds": 1, "graceSeconds": 20},
    "tests": {"request": REQUEST},
}
KINDS = {
    "native-sidecar": {"engine": {"nativeSidecar": True}},
    "plain-container": {"engine": {"nativeSidecar": False}},
    "arbitrary-user": {"openshift": True},
}


@pytest.fixture(scope="module")
def volumes(tmp_path_factory):
    """What the chart expects to be there: an image with a model, a Secret."""
    package = variants.tiny(tmp_path_factory.mktemp("tiny"), 0.25)
    # Not below pytest's directories, which only their owner may enter.
    with tempfile.TemporaryDirectory(prefix="outrigger-volumes-") as directory:
        made = {name: Path(directory) / name for name in ("baseline", "registry")}
        for each in (Path(directory), *made.values()):
            each.mkdir(exist_ok=True)
            each.chmod(0o755)
        package.push(f"oci:{made['baseline'] / 'churn'}:latest")
        (made["registry"] / "config.json").write_text(json.dumps({"auths": {}}))
        yield made


@pytest.fixture(scope="module", params=list(KINDS))
def pod(request, volumes):
    """The pod, running."""
    if request.param == "arbitrary-user" and not may_change_user():
        pytest.skip("needs root, setpriv, and binaries that others may read")
    values = merge(merge(CASES["minimal"].values, PRELOADED), KINDS[request.param])
    failures = request.session.testsfailed
    with LocalPod(render(values), volumes) as made:
        yield made.start()
        if request.session.testsfailed > failures:
            print(*(process.tail() for process in made.processes.values()))


def test_it_answers_over_grpc_and_http(pod):
    with Client(f"127.0.0.1:{pod.ports[9000]}") as client:
        message = pb.PredictRequest(model=selector("churn"))
        message.treatments.add(id="a").features["price"].number = 1.5
        assert client.call(message).scores.values == [0.25]
    assert post(pod, REQUEST)["scores"] == [{"id": "a", "score": 0.25}]


def test_helm_test_sends_its_requests(pod):
    service = pod.rendered.workload["metadata"]["name"]
    for test in pod.rendered.of_kind("Pod"):
        container = test["spec"]["containers"][0]
        request = pod.rendered.one("ConfigMap", f"{service}-test")["data"]["request.json"]
        (pod.directory / "request.json").write_text(request)
        arguments = [
            pod.local(each.replace(f"{service}:", "127.0.0.1:")).replace(
                "/request/", f"{pod.directory}/"
            )
            for each in container["args"]
        ]
        done = subprocess.run(
            [outrigger(), *arguments], capture_output=True, text=True, check=False
        )
        assert (container["command"], done.returncode) == (["outrigger"], 0), done.stderr
        assert "churn" in done.stdout or "0.25" in done.stdout


def test_it_runs_as_the_user_and_without_the_rights_that_are_rendered(pod):
    if not may_change_user():
        pytest.skip("needs root, setpriv, and binaries that others may read")
    user = pod.rendered.pod["securityContext"].get("runAsUser", ARBITRARY_USER)
    for process in pod.processes.values():
        status = Path(f"/proc/{process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        assert fields["Uid"].split() == [str(user)] * 4
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
        assert fields["NoNewPrivs"].strip() == "1"


def test_metrics_are_what_rules_and_dashboard_ask_for(pod):
    post(pod, REQUEST)
    everything = CASES["everything"].rendered
    queries = [
        *(alert["expr"] for alert in prometheus.alerts(everything)),
        *prometheus.dashboard_queries(prometheus.dashboard(everything)),
    ]
    known, scraped = prometheus.exposed(), prometheus.families(pod.get(9902, "/metrics")[1])
    assert set(scraped) <= set(known)
    for selector_ in (each for query in queries for each in prometheus.selectors(query)):
        samples = scraped.get(selector_.family)
        labels = {label for label, _, _ in selector_.matchers} - prometheus.TARGET_LABELS
        assert samples is None or all(labels <= set(each) for each in samples), selector_
        for label, operator, value in selector_.matchers:
            if samples and operator == "=" and label in ("state", "kind"):
                assert value in {each[label] for each in samples}, selector_


def test_a_draining_pod_finishes_requests_before_its_engine_ends(pod):
    serve, engine = pod.processes["outrigger"], pod.processes["engine"]
    stopping = threading.Thread(target=pod.stop)
    stopping.start()
    serve.wait_until(lambda: pod.get(9902, "/readyz")[0] == 503)
    assert post(pod, REQUEST)["scores"], "requests are answered while load balancers notice"
    draining = True
    while draining:
        ran = engine.running
        draining = pod.get(9902, "/readyz")[0] == 503
        assert ran or not draining
    stopping.join()
    assert serve.exit_code == 0
    assert engine.exit_code is not None


def post(pod, request):
    """POST /v1/predict."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{pod.ports[9080]}/v1/predict", json.dumps(request).encode()
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)
