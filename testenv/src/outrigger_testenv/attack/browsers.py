"""A browser whose page belongs to another origin (DNS rebinding)."""

import http.client

from outrigger_testenv.attack import frames
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.messages import model
from outrigger_testenv.attack.scene import Scene

_UNLOAD = "/outrigger.v1.ModelService/UnloadModel"
_EVIL = "evil.example"
_HEADERS = [
    {"Host": _EVIL, "Origin": f"http://{_EVIL}"},
    {"Origin": f"http://{_EVIL}"},
    {"Host": _EVIL},
    {"Sec-Fetch-Site": "cross-site"},
    {"Host": _EVIL, "Origin": f"http://{_EVIL}", "Sec-Fetch-Site": "same-origin"},
    {},
]


def _post(address: str, name: str, headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection(address, timeout=5)
    body = frames.message(model(name) + b"\x10\x01")
    try:
        connection.request("POST", _UNLOAD, body, {"Content-Type": "application/grpc", **headers})
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        # A refusal may also be the connection's end.
        pass
    finally:
        connection.close()


def _attack(scene: Scene, turn: Turn) -> str:
    name = f"good/browser-{turn.number}"
    digest = scene.stack.push(scene.package, name, labels={"turn": name})
    if error := scene.load(name):
        raise Broken(f"{name}: {error}")
    admin, client = scene.address("admin"), scene.stack.client()
    for headers in _HEADERS:
        _post(admin, name, headers)
        if client.serving_digest(name) != digest:
            raise Broken(f"a page unloaded a model with the headers {headers}")
    turn.wait()
    return "nothing is unloaded"


CASES = [
    Case("browser-rebinding", "changes from a page of another origin", _attack, turns=1),
]
