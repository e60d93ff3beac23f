"""TLS of the real binaries with other implementations: grpcio and the standard library."""

import json
import os
import ssl
import subprocess
import threading
import urllib.error
import urllib.request

import grpc
import pytest

from outrigger.v1 import model_pb2, model_pb2_grpc, prediction_pb2_grpc
from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv.binary import outrigger
from outrigger_testenv.client import channel_options, selector
from outrigger_testenv.stack import Stack

TOKEN = "the-token-of-deployments"
# A name in the certificate that no resolver knows, as when connecting through a forwarded port.
SERVICE = "outrigger.models.svc"


def openssl(directory, *arguments):
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def extensions(*values):
    return [argument for value in values for argument in ("-addext", value)]


class Certificates:
    """An authority and its certificates, made by openssl in a directory."""

    def __init__(self, directory):
        self.directory = directory
        # A configuration without the extensions that the system's own may add.
        (directory / "openssl.cnf").write_text("[req]\ndistinguished_name=dn\n[dn]\n")
        signs = extensions("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign")
        self._issue("ca", "/CN=authority", *signs)

    def issue(self, name, subject, names):
        """Issues a certificate: NAME.crt and NAME.key."""
        signed = extensions("basicConstraints=critical,CA:FALSE", names)
        self._issue(name, subject, "-CA", "ca.crt", "-CAkey", "ca.key", *signed)

    def read(self, *names):
        return tuple((self.directory / name).read_bytes() for name in names)

    def _issue(self, name, subject, *further):
        made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
        openssl(
            self.directory,
            "req",
            "-x509",
            "-config",
            "openssl.cnf",
            *made,
            "-subj",
            subject,
            *files,
            *further,
        )


class Mount:
    """A Secret as the kubelet mounts it: every file is a link through a directory link, which is
    swapped.
    """

    def __init__(self, directory, names):
        self.directory = directory
        self._swaps = 0
        for name in names:
            (directory / name).symlink_to(f"..data/{name}")

    def swap(self, files):
        """Replaces all files at once."""
        self._swaps += 1
        fresh = self.directory / f"..{self._swaps}"
        fresh.mkdir()
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        link = self.directory / "..new"
        link.symlink_to(fresh.name)
        os.replace(link, self.directory / "..data")


class Secured:
    """A stack with TLS, client certificates over gRPC, and a token for changes."""

    def __init__(self, directory):
        for each in ("made", "mounted", "tokens"):
            (directory / each).mkdir()
        self.certificates = Certificates(directory / "made")
        self.certificates.issue("caller", "/CN=caller", "subjectAltName=URI:spiffe://shop/backend")
        self.mount = Mount(directory / "mounted", ("tls.crt", "tls.key"))
        self.rotate()
        self.token = directory / "tokens" / "deploy"
        self.token.write_text(TOKEN + "\n")
        self.ca = directory / "made" / "ca.crt"
        self.stack = Stack(
            {
                "tls": {
                    "certificate": str(directory / "mounted" / "tls.crt"),
                    "key": str(directory / "mounted" / "tls.key"),
                    "client_ca": str(self.ca),
                    "grpc": "mutual",
                    "health": "plain",
                },
                "auth": {
                    "tokens": str(directory / "tokens"),
                    "callers": {
                        "uri:spiffe://shop/backend": ["predict"],
                        "token:deploy": ["predict", "change"],
                    },
                    "anonymous": ["read"],
                },
            }
        )

    def rotate(self):
        """Issues a new certificate for the server, by the same authority."""
        names = f"subjectAltName=IP:127.0.0.1,DNS:{SERVICE}"
        self.certificates.issue("server", "/CN=server", names)
        certificate, key = self.certificates.read("server.crt", "server.key")
        self.mount.swap({"tls.crt": certificate, "tls.key": key})

    def channel(self, with_certificate=True):
        """Opens a connection to the gRPC listener."""
        root, certificate, key = self.certificates.read("ca.crt", "caller.crt", "caller.key")
        pair = {"private_key": key, "certificate_chain": certificate} if with_certificate else {}
        credentials = grpc.ssl_channel_credentials(root, **pair)
        target = self.stack.serve.target
        return grpc.secure_channel(target, credentials, options=channel_options(target))

    def run(self, *arguments):
        """Runs a command against the admin listener."""
        admin = [f"--admin={self.stack.serve.admin}", f"--ca={self.ca}"]
        return subprocess.run(
            [outrigger(), *arguments, *admin], capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.stack:
        yield made


@pytest.fixture(scope="module")
def model(secured, tiny):
    secured.stack.push(tiny(0.25), "churn")
    return "churn"


def request(model):
    message = pb.PredictRequest(model=selector(model))
    message.treatments.add(id="a").features["price"].number = 1.5
    return message


def predict(channel, model):
    return prediction_pb2_grpc.PredictionServiceStub(channel).Predict(request(model), timeout=60)


def test_grpcio_predicts_over_mutual_tls(secured, model):
    with secured.channel() as channel:
        assert predict(channel, model).scores.values == [0.25]


def test_grpcio_is_not_let_in_without_a_certificate(secured, model):
    with secured.channel(with_certificate=False) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            predict(channel, model)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def test_rights_are_those_of_the_certificate(secured):
    with secured.channel() as channel:
        service = model_pb2_grpc.ModelServiceStub(channel)
        service.ListModels(model_pb2.ListModelsRequest(), timeout=60)
        with pytest.raises(grpc.RpcError) as refused:
            service.LoadModel(model_pb2.LoadModelRequest(model=selector("churn")), timeout=60)
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED


def test_http_answers_over_tls_and_asks_for_a_token(secured, model):
    context = ssl.create_default_context(cafile=secured.ca)
    url = secured.stack.serve.http.replace("http://", "https://")
    with urllib.request.urlopen(f"{url}/v1/models", timeout=60, context=context) as answer:
        assert "models" in json.load(answer)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{url}/v1/predict", data=b"{}", timeout=60, context=context)
    assert refused.value.code == 401
    assert json.load(refused.value)["error"]["reason"] == "UNAUTHENTICATED"


def test_commands_show_a_token_and_every_change_is_recorded(secured, model):
    refused = secured.run("models", "load", model)
    assert (refused.returncode, "UNAUTHENTICATED" in refused.stderr) == (1, True), refused.stderr
    done = secured.run("models", "load", model, f"--token-file={secured.token}")
    assert done.returncode == 0, done.stderr
    log = (secured.stack.logs / "serve.log").read_text()
    records = [line for line in log.splitlines() if "outrigger::audit" in line]
    assert any('caller="anonymous"' in each and "UNAUTHENTICATED" in each for each in records)
    assert any('caller="token:deploy"' in each and 'outcome="OK"' in each for each in records)
    assert TOKEN not in log


def test_commands_find_the_token_that_the_server_has_written(own_stack, tiny):
    stack = own_stack()
    stack.push(tiny(0.25), "churn")
    assert stack.serve.token.stat().st_mode & 0o777 == 0o600
    done = stack.serve.run("models", "load", "churn")
    assert done.returncode == 0, done.stderr
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(stack.directory / "none")}
    command = [outrigger(), "models", "unload", "churn", "--admin", stack.serve.admin]

    def unload(*further):
        return subprocess.run(
            [*command, *further], capture_output=True, text=True, env=environment, check=False
        )

    refused = unload()
    assert (refused.returncode, "UNAUTHENTICATED" in refused.stderr) == (1, True), refused.stderr
    assert "outrigger token" in refused.stderr
    printed = subprocess.run(
        [outrigger(), "token", f"--token-file={stack.serve.token}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed == stack.serve.token.read_text()
    assert unload(f"--token-file={stack.serve.token}").returncode == 0
    stack.serve.token.chmod(0o640)
    placed = stack.serve.run("models", "load", "churn")
    assert (placed.returncode, "must have 0600" in placed.stderr) == (64, True), placed.stderr


def test_commands_check_the_given_server_name(secured, model, tmp_path):
    done = secured.run("models", "list", f"--server-name={SERVICE}")
    assert done.returncode == 0, done.stderr
    assert secured.run("models", "list", "--server-name=other.example").returncode == 1
    body = {"model": {"name": model}, "user": {}, "treatments": [{"features": {"price": 1.5}}]}
    (tmp_path / "request.json").write_text(json.dumps(body))
    url = secured.stack.serve.http.replace("http://", "https://")
    access = [f"--ca={secured.ca}", f"--token-file={secured.token}"]
    for name, code in ((SERVICE, 0), ("other.example", 1)):
        arguments = [f"--url={url}", *access, f"--server-name={name}", tmp_path / "request.json"]
        done = subprocess.run(
            [outrigger(), "predict", *arguments], capture_output=True, text=True, check=False
        )
        assert (done.returncode, "0.25" in done.stdout) == (code, code == 0), done.stderr


def test_the_load_generator_accepts_the_credentials_of_the_other_commands(secured, model, tiny):
    requests = [f"--model={model}", f"--package={tiny(0.25).directory}", "--treatments=2"]
    made = secured.certificates.directory
    certificate = [f"--cert={made / 'caller.crt'}", f"--key={made / 'caller.key'}"]
    token = f"--token-file={secured.token}"
    grpc_address = f"--server={secured.stack.serve.target}"
    http_address = "--server=" + secured.stack.serve.http.replace("http://", "https://")
    for access, problem in (
        ([grpc_address, f"--ca={secured.ca}", *certificate], None),
        ([grpc_address, f"--ca={secured.ca}", *certificate, token], None),
        ([http_address, f"--ca={secured.ca}", token], None),
        ([http_address, f"--ca={secured.ca}", token, f"--server-name={SERVICE}"], None),
        ([grpc_address, *certificate], "UnknownIssuer"),
        ([grpc_address, f"--ca={secured.ca}"], "outrigger: "),
        ([http_address, f"--ca={secured.ca}"], "UNAUTHENTICATED"),
        ([http_address, f"--ca={secured.ca}", "--server-name=other.example"], "certificate"),
    ):
        form = "--form=json" if http_address in access else "--form=kv"
        done = bench(*access, form, *requests)
        assert (done.returncode == 0) == (problem is None), (access, done.stderr)
        assert problem is None or problem in done.stderr, (access, done.stderr)


def bench(*arguments):
    """Runs the load generator for a short time."""
    load = ["--max", "--duration=200ms", "--warmup=0s", "--in-flight=2", "--timeout=60s"]
    command = [outrigger(), "bench", *arguments, *load, "--quiet"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_certificates_rotate_and_grpcio_loses_no_request(secured, model):
    """Uses a lasting connection, and a new one for every request."""
    answers, failures = [], []
    stop = threading.Event()

    def ask(keep):
        channel = secured.channel()
        while not stop.is_set():
            if not keep:
                channel.close()
                channel = secured.channel()
            try:
                answers.append(predict(channel, model).scores.values)
            except grpc.RpcError as error:
                failures.append(error)
        channel.close()

    callers = [threading.Thread(target=ask, args=(keep,)) for keep in (True, False)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(3):
            rotated(secured, certificate(secured))
            answered(secured, answers, len(answers) + 20)
    finally:
        stop.set()
        for caller in callers:
            caller.join()
    assert failures == []


def rotated(secured, shown):
    secured.rotate()
    secured.stack.serve.process.wait_until(lambda: certificate(secured) != shown)


def answered(secured, answers, count):
    secured.stack.serve.process.wait_until(lambda: len(answers) > count)


def certificate(secured):
    """The certificate that the HTTP listener presents on a new connection."""
    host, port = secured.stack.serve.http.removeprefix("http://").split(":")
    return ssl.get_server_certificate((host, int(port)), ca_certs=str(secured.ca), timeout=60)
