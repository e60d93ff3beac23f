"""Models from a registry that takes the tokens of a pod in Google Cloud."""

import base64
import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd
import pytest

from outrigger_testenv.errors import OutriggerError

MODEL = "identity/tiny"
PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
OFFERS = pd.DataFrame({"price": [1.0]}, index=["a"])
USERS = pd.DataFrame({"age": [30]}, index=["u"])


class Server:
    """An HTTP server on loopback: `answer` gets a request and returns status, headers and body."""

    def __init__(self, answer):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                status, headers, body = answer(self)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_):
                """Logs nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.host = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


class Cloud:
    """A metadata server, and a registry that admits only its present token."""

    def __init__(self, registry):
        self.token = "token-one"
        self.asked = 0
        self._registry = registry
        self.metadata = Server(self._give)
        self.guard = Server(self._admit)

    def _give(self, request):
        if (request.path, request.headers["Metadata-Flavor"]) != (PATH, "Google"):
            return 403, {}, b""
        self.asked += 1
        answer = {"access_token": self.token, "expires_in": 3600, "token_type": "Bearer"}
        return 200, {"Metadata-Flavor": "Google"}, json.dumps(answer).encode()

    def _admit(self, request):
        login = base64.b64encode(f"oauth2accesstoken:{self.token}".encode()).decode()
        if request.headers["Authorization"] != f"Basic {login}":
            return 401, {"WWW-Authenticate": 'Basic realm="cloud"'}, b""
        headers = {"Accept": request.headers["Accept"] or "*/*"}
        url = f"http://{self._registry.host}{request.path}"
        asked = urllib.request.Request(url, headers=headers, method=request.command)
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                kept = ("Content-Type", "Content-Length", "Docker-Content-Digest")
                found = {name: answer.headers[name] for name in kept if answer.headers[name]}
                return answer.status, found, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, {}, error.read()


@pytest.fixture
def cloud(needs_registry, own_stack, monkeypatch):
    """A stack whose control plane knows the registry by its guard only."""
    stack = own_stack(start=False)
    stack.registry.start()
    cloud = Cloud(stack.registry)
    with cloud.metadata, cloud.guard:
        monkeypatch.setenv("GCE_METADATA_HOST", cloud.metadata.host)
        stack.serve.config["images"] |= {
            "repository": f"{cloud.guard.host}/models",
            "allowed": [f"{cloud.guard.host}/models"],
            "plain_http": [cloud.guard.host],
            "identity": "gcp",
            "identity_hosts": [cloud.guard.host],
            "poll_interval": "1s",
        }
        stack.engine.start()
        stack.serve.start()
        cloud.stack = stack
        yield cloud


def test_a_model_is_pulled_and_followed_by_the_tokens_of_the_identity(cloud, tiny):
    stack, client = cloud.stack, cloud.stack.client()
    first = stack.push(tiny(1.0), MODEL)
    scores = client.predict(MODEL, USERS, OFFERS)
    assert (scores["score"][0], scores["digest"][0]) == (1.0, first)
    assert 1 <= cloud.asked < 5, "look-ups at the same time may each ask, later ones do not"
    # The registry admits another token from now on: after its 401 a new one is taken.
    before, cloud.token = cloud.asked, "token-two"
    second = stack.push(tiny(2.0), MODEL)
    client.wait_until_serving(MODEL, second)
    assert client.predict(MODEL, USERS, OFFERS)["score"][0] == 2.0
    assert before < cloud.asked < before + 5
    assert "token-" not in stack.serve.process.log.read_text()


def test_another_registry_gets_no_token(cloud, tiny):
    stack = cloud.stack
    stack.push(tiny(1.0), MODEL)
    stack.serve.process.stop()
    # Those of Google, of which the guard is none.
    stack.serve.config["images"]["identity_hosts"] = []
    stack.serve.start()
    with pytest.raises(OutriggerError, match="REGISTRY_DENIED"):
        stack.client().predict(MODEL, USERS, OFFERS)
    assert cloud.asked == 0
