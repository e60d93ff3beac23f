"""Connections: masses of them, and floods of frames, in clear and inside TLS."""

from collections.abc import Callable
from typing import Any

from outrigger_testenv.attack import floods
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case
from outrigger_testenv.attack.probes import status
from outrigger_testenv.attack.requests import sent
from outrigger_testenv.attack.scene import WIDE, Scene
from outrigger_testenv.stack import Stack

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

# Each flooded listener: its part of the description, its name, and whether it has TLS. The listener
# of gRPC reads frames in code of its own (`server/src/listen/intake.rs`), the others do not.
_FLOODED = {
    "clear": ("", "grpc", False),
    "tls": (", inside TLS", "http", True),
    "grpc-tls": (", inside TLS, on the grpc port", "grpc", True),
    "health": (", on the health port", "health", False),
}


def _flood(name: str, where: str) -> Case:
    (about, function), (place, listener, tls) = _FLOODS[name], _FLOODED[where]
    return sent(
        f"connections-{name}-{where}",
        f"{about}{place}",
        function,
        listener=listener,
        tls=tls,
        inside_tls=tls,
        **({"stack": _secured} if where == "grpc-tls" else {}),
        **({"name": WIDE} if name == "tiny-windows" else {}),
    )


def _secured(scene: Scene) -> Stack:
    return scene.other(Scene.secured)


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
    *(_flood(name, where) for name in _FLOODS for where in ("clear", "tls", "grpc-tls")),
    _flood("ping", "health"),
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
