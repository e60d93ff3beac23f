"""Connections: masses of them, and floods of frames, in clear and inside TLS."""

from collections.abc import Callable
from typing import Any

from outrigger_testenv.attack import floods
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case
from outrigger_testenv.attack.probes import status
from outrigger_testenv.attack.requests import sent
from outrigger_testenv.attack.scene import WIDE, Scene

_MODELS = 60
_READERS = 64
_IDLE = 1100
# More than the default of `server.max_in_flight`, so that a place for each would leave none.
_SLOW = 1100

_FLOODS = {
    "rapid-reset": ("10,000 frames a second: calls, reset at once", floods.rapid_reset),
    "continuation": ("10,000 frames a second: headers without an end", floods.continuation),
    "ping": ("10,000 frames a second: pings", floods.ping),
    "settings": ("10,000 frames a second: settings", floods.settings),
    "empty-data": ("10,000 frames a second: data without a byte", floods.empty_data),
    "tiny-windows": ("50 answers, granted a byte at a time", floods.tiny_windows),
}


def _flood(name: str, tls: bool, listener: str = "") -> Case:
    about, function = _FLOODS[name]
    return sent(
        f"connections-{name}-{listener or ('tls' if tls else 'clear')}",
        f"{about}{', inside TLS' if tls else ''}{f', on the {listener} port' if listener else ''}",
        function,
        listener=listener or ("http" if tls else "grpc"),
        tls=tls,
        inside_tls=tls,
        **({"name": WIDE} if name == "tiny-windows" else {}),
    )


def _slow(part: str, function: Callable[..., Any], listener: str) -> Case:
    tls = listener == "http"
    return sent(
        f"connections-slow-{part}{'-http' if tls else ''}",
        f"{_SLOW:,} requests over HTTP/1 whose {part} come byte by byte, on the port of {listener}",
        function,
        listener=listener,
        tls=tls,
        inside_tls=tls,
        opens=True,
        connections=_SLOW,
    )


def _page_opens(scene: Scene) -> str:
    for path in ("/ui", "/ui/events"):
        answered = status(scene.address("admin"), path)
        if answered != 200:
            raise Broken(f"the operator's {path} is answered {answered}")
    return "the operator's page opens"


def _many_models(scene: Scene, turn: int) -> None:
    for number in range(_MODELS if turn == 0 else 0):
        name = f"many/{number}"
        scene.stack.push(scene.package, name)
        if error := scene.load(name):
            raise Broken(f"{name}: {error}")


CASES = [
    sent(
        "connections-idle",
        f"{_IDLE} idle connections on the port of gRPC",
        floods.idle,
        connections=_IDLE,
    ),
    *(_flood(name, tls) for name in _FLOODS for tls in (False, True)),
    _flood("ping", tls=False, listener="health"),
    sent(
        "connections-pipelined",
        "10,000 requests a second over HTTP/1, whose answers nobody reads",
        floods.pipelined,
        listener="http",
        tls=True,
        inside_tls=True,
        opens=True,
        connections=16,
        path="/v1/models",
    ),
    *(_slow("headers", floods.slow_headers, listener) for listener in ("grpc", "http")),
    _slow("bodies", floods.slow_http_bodies, "http"),
    sent(
        "connections-slow-bodies",
        "1,500 calls of gRPC whose messages come byte by byte",
        floods.slow_bodies,
        opens=True,
        calls=1500,
    ),
    sent(
        "connections-metrics",
        f"{_READERS} readers of /metrics, {_MODELS} models",
        floods.readers,
        listener="health",
        connections=_READERS,
        path="/metrics",
        prepare=_many_models,
    ),
    sent(
        "connections-streams",
        f"{_READERS} unread streams of events",
        floods.streams,
        listener="admin",
        connections=_READERS,
        path="/ui/events",
        check=_page_opens,
    ),
]
