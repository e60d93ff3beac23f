"""The rendered pod runs: its two processes with their arguments, environment, paths and user."""

import json
import os
import re
import signal
import ssl
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv import authority, variants
from outrigger_testenv.chart import prometheus
from outrigger_testenv.chart.cases import CASES
from outrigger_testenv.chart.pod import LocalPod
from outrigger_testenv.chart.reach import reached
from outrigger_testenv.chart.render import render
from outrigger_testenv.chart.root import Root, may_mount
from outrigger_testenv.chart.user import ARBITRARY_USER, may_change_user
from outrigger_testenv.client import Client, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.processes import Process, free_ports
from outrigger_testenv.proxy import Proxy
from outrigger_testenv.registry import Registry
from outrigger_testenv.signing import Signer
from outrigger_testenv.stack import merge
from outrigger_testenv.tools import needs

REQUEST = {
    "model": {"name": "churn"},
    "user": {"age": 30},
    "treatments": [{"id": "a", "features": {"price": 1.5}}],
}
# The baseline holds the model, so that no registry is needed; the Secret tests its mount path.
PRELOADED = {
    "config": {"models": [{"name": "churn", "image": "oci:/baseline/churn", "preload": True}]},
    "baseline": {"reference": "registry.example/baseline:1"},
    "registry": {"existingSecret": "credentials"},
    "drain": {"delaySeconds": 1, "graceSeconds": 20},
    "tests": {"request": REQUEST},
}
BATCHING = {"enabled": True, "perModel": True, "maxBatchSize": 64, "allowedSizes": [16, 64]}
# A registry that can be reached only through the proxy, with a certificate by an authority that
# only the bundle contains, and models that must be signed.
HOST = "registry.example"
FROM_REGISTRY = {
    "config": {
        "images": {
            "repository": f"{HOST}/team",
            "signatures": [{"prefix": HOST, "keys": ["/etc/outrigger/keys/cosign.pub"]}],
        },
        "models": [{"name": "churn", "preload": True}],
    },
    "baseline": {"reference": ""},
    "registry": {
        "caBundle": {"existingConfigMap": "company-ca"},
        "signatureKeys": {"existingSecret": "cosign-keys"},
    },
    "proxy": {"noProxy": ".svc,10.0.0.0/8"},
}
# Cases of values, with changes of them.
KINDS = {
    "native-sidecar": ("minimal", {"engine": {"nativeSidecar": True}}),
    "plain-container": ("minimal", {"engine": {"nativeSidecar": False}}),
    "arbitrary-user": ("minimal", {"openshift": True}),
    "batching": ("minimal", {"engine": {"batching": BATCHING}}),
    "secured": ("secured", {}),
    "from-registry": ("minimal", FROM_REGISTRY),
}
FILES = ("ca.crt", "tls.key", "tls.crt")
SERVICE = "demo-outrigger.models.svc"
TOKEN = "the-token-of-deployments"


@pytest.fixture(scope="module")
def volumes(tmp_path_factory):
    """The volumes that the chart expects to exist: an image with a model, and Secrets."""
    package = variants.tiny(tmp_path_factory.mktemp("tiny"), 0.25)
    # Not below pytest's directories, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="outrigger-volumes-") as directory:
        volumes = Path(directory)
        files = {
            "registry/config.json": json.dumps({"auths": {}}),
            "tokens/deploy": TOKEN,
            "token/token": TOKEN,
            **certificates(tmp_path_factory.mktemp("authority")),
        }
        for path, text in files.items():
            (volumes / path).parent.mkdir(exist_ok=True)
            (volumes / path).write_text(text)
        package.push(f"oci:{volumes / 'baseline' / 'churn'}:latest")
        for each in (volumes, *volumes.iterdir()):
            each.chmod(0o755)
        yield {each.name: each for each in volumes.iterdir()}


@pytest.fixture(scope="module")
def outside(volumes, tmp_path_factory):
    """Runs a registry and the proxy to it; yields the proxy, and volumes with the authority and the
    signature key to trust.
    """
    needs("docker-registry", "openssl")
    directory = tmp_path_factory.mktemp("outside")
    made = authority.certificate(directory / "authority", "127.0.0.1", HOST)
    registry = Registry(directory / "data", free_ports(1)[0], directory / "log", made)
    registry.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTRIGGER_CA", str(made.authority))
        package = variants.tiny(directory / "tiny", 0.25)
        digest = package.push(registry.reference("team/churn", "latest"))
    trusted = {name: volumes["registry"].with_name(name) for name in ("ca", "keys")}
    signer = Signer(trusted["keys"] / "cosign.pub")
    signer.sign(registry, "team/churn", digest)
    trusted["ca"].mkdir()
    (trusted["ca"] / "ca.crt").write_text(made.authority.read_text())
    with Proxy({f"{HOST}:443": registry.host}) as proxy:
        yield proxy, trusted
    registry.stop()


def certificates(directory):
    """The files of the Secrets: the pods' certificate and its authority."""
    if not authority.available():
        return {}
    made = authority.certificate(directory, "127.0.0.1", SERVICE)
    authorities = made.authority.read_text()
    return {
        "tls/tls.crt": made.file.read_text(),
        "tls/tls.key": made.key.read_text(),
        "tls/ca.crt": authorities,
        "client-ca/ca.crt": authorities,
    }


@pytest.fixture(scope="module", params=list(KINDS))
def pod(request, volumes):
    """The running pod."""
    if request.param == "arbitrary-user" and not may_change_user():
        pytest.skip("needs root, setpriv, and binaries that others may read")
    if request.param == "secured":
        needs("openssl")
    case, changes = KINDS[request.param]
    values = merge(merge(CASES[case].values, PRELOADED), changes)
    if request.param == "from-registry":
        proxy, trusted = request.getfixturevalue("outside")
        values = merge(values, {"proxy": {"https": proxy.url}})
        volumes = volumes | trusted
    failures = request.session.testsfailed
    with LocalPod(render(values), volumes) as made:
        yield made.start()
        if request.session.testsfailed > failures:
            print(*(process.tail() for process in made.processes.values()))


class Caller:
    """A caller with the pod's authority, and by default with its certificate and a token.

    Without TLS in the pod, no credentials are sent.
    """

    def __init__(self, pod, volumes, secrets=True):
        self._pod = pod
        self._tls = volumes["tls"] if is_secured(pod) else None
        self._secrets = secrets

    def predict(self):
        """The scores of a request over gRPC. Raises OutriggerError."""
        message = pb.PredictRequest(model=selector("churn"))
        message.treatments.add(id="a").features["price"].number = 1.5
        target = f"127.0.0.1:{self._pod.ports[9000]}"
        with Client(target, credentials=self._tls and self._credentials()) as client:
            return list(client.call(message).scores.values)

    def post(self):
        """The answer to POST /v1/predict. Raises HTTPError."""
        scheme, headers, context = "http", {}, None
        if self._tls:
            scheme, context = "https", ssl.create_default_context(cafile=self._tls / "ca.crt")
            headers = {"authorization": f"Bearer {TOKEN}"} if self._secrets else {}
        url = f"{scheme}://127.0.0.1:{self._pod.ports[9080]}/v1/predict"
        asked = urllib.request.Request(url, json.dumps(REQUEST).encode(), headers)
        with urllib.request.urlopen(asked, timeout=30, context=context) as answer:
            return json.load(answer)

    def _credentials(self):
        root, key, chain = ((self._tls / each).read_bytes() for each in FILES)
        if not self._secrets:
            return grpc.ssl_channel_credentials(root)
        token = grpc.access_token_call_credentials(TOKEN)
        return grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(root, key, chain), token
        )


def is_secured(pod):
    return any(each["name"] == "tls" for each in pod.rendered.pod["volumes"])


@pytest.fixture
def caller(pod, volumes):
    """A caller with credentials."""
    return Caller(pod, volumes)


def test_it_answers_over_grpc_and_http(caller):
    assert caller.predict() == [0.25]
    assert caller.post()["scores"] == [{"id": "a", "score": 0.25}]


def test_it_answers_strangers_only_where_it_is_not_secured(pod, volumes):
    stranger = Caller(pod, volumes, secrets=False)
    if not is_secured(pod):
        assert stranger.predict() == [0.25]
        return
    with pytest.raises(OutriggerError, match="UNAVAILABLE"):
        stranger.predict()
    with pytest.raises(urllib.error.HTTPError) as refused:
        stranger.post()
    assert refused.value.code == 401


def test_it_verifies_signatures_where_keys_are_mounted(pod):
    found = r'^outrigger_signature_verifications_total\{outcome="found"\} (\d+)$'
    (verified,) = re.findall(found, pod.get("/metrics")[1], re.MULTILINE)
    has_keys = any(each["name"] == "keys" for each in pod.rendered.pod["volumes"])
    assert (int(verified) > 0) == has_keys


def test_helm_test_sends_its_requests(pod):
    listed, predicted = (pod.test(hook) for hook in pod.rendered.of_kind("Pod"))
    assert (listed.returncode, predicted.returncode) == (0, 0), listed.stderr + predicted.stderr
    assert "churn" in listed.stdout
    assert "0.25" in predicted.stdout


def test_the_first_request_of_the_notes_is_answered(pod, volumes):
    """Runs the command unchanged except for the port, in the directory that holds the files that
    `kubectl get secret` would write.
    """
    (command,) = re.findall(r"^  (curl .+)$", pod.rendered.notes, re.MULTILINE)
    done = subprocess.run(
        command.replace(":9080", f":{pod.ports[9080]}"),
        shell=True,
        cwd=volumes.get("tls"),
        env={**os.environ, "TOKEN": TOKEN},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scores"] == [{"id": "a", "score": 0.25}]


def test_it_runs_as_the_user_and_without_the_rights_that_are_rendered(pod):
    if not may_change_user():
        pytest.skip("needs root, setpriv, and binaries that others may read")
    user = pod.rendered.pod["securityContext"].get("runAsUser", ARBITRARY_USER)
    for process in pod.processes.values():
        status = Path(f"/proc/{pod.first(process.name)}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        assert fields["Uid"].split() == [str(user)] * 4
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
        assert fields["NoNewPrivs"].strip() == "1"


def test_a_model_in_the_engine_reaches_no_file_setting_or_process_of_the_control_plane(pod):
    if not may_mount():
        pytest.skip("needs root, unshare, and a file system of processes")
    assert reached(pod) == []


def test_the_engine_ends_at_the_signal_although_its_program_has_no_handler(tmp_path):
    if not may_mount():
        pytest.skip("needs root, unshare, and a file system of processes")
    *before, _ = CASES["minimal"].rendered.container("engine")["command"]
    enter = Root(tmp_path / "root", {}).enter(alone=True)
    process = Process("engine", [*enter, *before, "sleep", "600"], tmp_path / "log")
    process.start()

    def children(pid):
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    def runs():
        # The commands that mount come and go.
        with suppress(FileNotFoundError):
            within = [each for first in children(process.pid) for each in (first, *children(first))]
            return "sleep\n" in [Path(f"/proc/{each}/comm").read_text() for each in within]
        return False

    process.wait_until(runs)
    (first,) = children(process.pid)
    os.kill(int(first), signal.SIGTERM)
    process.wait_until_ended(10)
    assert process.exit_code == 128 + signal.SIGTERM


def test_it_exposes_all_declared_metrics_except_unused_ones(pod, caller):
    caller.post()
    without = {prometheus.TRIAL, prometheus.PROFILE, prometheus.TRACES}
    without |= {prometheus.BATCHER, prometheus.ROWS}
    without |= set() if is_secured(pod) else {prometheus.TLS}
    absent = {family for family, waits in prometheus.LATER.items() if waits in without}
    scraped = prometheus.families(pod.get("/metrics")[1])
    assert set(scraped) == set(prometheus.declared()) - absent


def test_a_draining_pod_finishes_requests_before_its_engine_ends(pod, caller):
    serve, engine = pod.processes["outrigger"], pod.processes["engine"]
    stopping = threading.Thread(target=pod.stop)
    stopping.start()
    serve.wait_until(lambda: pod.get("/readyz")[0] == 503)
    assert caller.post()["scores"], "requests are answered while load balancers notice"
    draining = True
    while draining:
        ran = engine.running
        draining = pod.get("/readyz")[0] == 503
        assert ran or not draining
    stopping.join()
    assert serve.exit_code == 0
    assert engine.exit_code is not None
