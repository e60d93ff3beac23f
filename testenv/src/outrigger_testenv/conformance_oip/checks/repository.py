"""Check 88: the model repository extension."""

from outrigger_testenv.conformance_oip import rpc as calling
from outrigger_testenv.conformance_oip.check import Check, rest, rpc
from outrigger_testenv.conformance_oip.checks.health import ABSENT
from outrigger_testenv.conformance_oip.server import FP32, Server

_INDEX = "/v2/repository/index"
_STATES = {"READY", "UNAVAILABLE", "LOADING", "UNLOADING"}
# Load and unload over REST are offered, or refused as a method that is not allowed.
_UNKNOWN = ('404 {"error":"*"}', '405 {"error":"*"}')


def _index(body: bytes):
    """The state of a model in the index, and the states that the protocol does not know."""

    def act(server: Server) -> str:
        answer = server.post(_INDEX, body)
        if answer.status != 200:
            return answer.text()
        return f"200 {_states((each['name'], each.get('state')) for each in answer.json())}"

    return act


def _states(models) -> str:
    found = dict(models)
    unknown = sorted({str(state) for state in found.values()} - _STATES)
    return f"{FP32} is {found.get(FP32, 'absent')}, unknown states: {unknown}"


def _index_call(server: Server) -> str:
    return server.calls(
        "RepositoryIndex", lambda answer: _states((each.name, each.state) for each in answer.models)
    )


def _changes(name: str, model: str):
    """A call that loads or unloads, at the address that has them."""

    def act(server: Server) -> str:
        request = calling.request(name, model_name=model)
        calling.call(server.channel(server.repository), name, request)
        return "OK"

    return act


def _posted(action: str):
    return lambda server: server.post(f"/v2/repository/models/{ABSENT}/{action}", b"{}").text()


_READY = f"{FP32} is READY, unknown states: []"

CHECKS = [
    Check(
        88,
        "the index lists the models; unknown models are neither loaded nor unloaded",
        [
            rest("index, empty body", f"200 {_READY}", _index(b"")),
            rest("index of all", f"200 {_READY}", _index(b"{}")),
            rest("index of ready ones", f"200 {_READY}", _index(b'{"ready":true}')),
            rest("load of an unknown model", _UNKNOWN, _posted("load")),
            rest("unload of an unknown model", _UNKNOWN, _posted("unload")),
            rpc("index", f"OK {_READY}", _index_call),
            rpc("load", "OK", _changes("RepositoryModelLoad", FP32)),
            rpc(
                "load of an unknown model", "NOT_FOUND: *", _changes("RepositoryModelLoad", ABSENT)
            ),
            rpc(
                "unload of an unknown model",
                "NOT_FOUND: *",
                _changes("RepositoryModelUnload", ABSENT),
            ),
        ],
    )
]
