"""A browser whose page belongs to another origin (DNS rebinding)."""

import http.client

from outrigger_testenv.attack import frames
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.messages import model
from outrigger_testenv.attack.scene import NEIGHBOUR, Scene

_UNLOAD = "/outrigger.v1.ModelService/UnloadModel"
_EVIL = "evil.example"
_DONE = 'outcome="OK"'
_HEADERS = [
    {"Host": _EVIL, "Origin": f"http://{_EVIL}"},
    {"Origin": f"http://{_EVIL}"},
    {"Host": _EVIL},
    {"Sec-Fetch-Site": "cross-site"},
    {"Host": _EVIL, "Origin": f"http://{_EVIL}", "Sec-Fetch-Site": "same-origin"},
    {},
]


def _send(address: str, method: str, path: str, headers: dict[str, str]) -> int:
    """Sends a request over HTTP/1 as a browser does; its status, or 0 without an answer."""
    connection = http.client.HTTPConnection(address, timeout=5)
    body = frames.message(model(NEIGHBOUR)) if method == "POST" else None
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _attack(scene: Scene, turn: Turn) -> str:
    admin = scene.address("admin")
    for headers in _HEADERS:
        _send(admin, "POST", _UNLOAD, {"Content-Type": "application/grpc", **headers})
        if done := _unloaded(scene):
            raise Broken(f"a page changed a model with the headers {headers}: {done}")
    if _send(admin, "GET", "/ui", {"Host": _EVIL}) == 200:
        raise Broken("a page of another origin reads the operator's page")
    turn.wait()
    return "nothing is changed or read"


def _unloaded(scene: Scene) -> str:
    """The record of an unload that succeeded; empty if there is none."""
    log = (scene.stack.logs / "serve.log").read_text(errors="replace")
    done = (line for line in log.splitlines() if "outrigger::audit" in line and _DONE in line)
    return next((line for line in done if 'verb="unload"' in line), "")


CASES = [
    Case("browser-rebinding", "changes from a page of another origin", _attack, turns=1),
]
