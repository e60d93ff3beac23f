"""Connections: masses of them, and floods of frames, in clear and inside TLS."""

from outrigger_testenv.attack import floods
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case
from outrigger_testenv.attack.probes import status
from outrigger_testenv.attack.requests import sent
from outrigger_testenv.attack.scene import WIDE, Scene

_MODELS = 60
_READERS = 64
_IDLE = 1100

_FLOODS = {
    "rapid-reset": ("10,000 frames a second: calls, reset at once", floods.rapid_reset),
    "continuation": ("10,000 frames a second: headers without an end", floods.continuation),
    "ping": ("10,000 frames a second: pings", floods.ping),
    "settings": ("10,000 frames a second: settings", floods.settings),
    "empty-data": ("10,000 frames a second: data without a byte", floods.empty_data),
    "tiny-windows": ("50 answers, granted a byte at a time", floods.tiny_windows),
}


def _flood(name: str, tls: bool) -> Case:
    about, function = _FLOODS[name]
    return sent(
        f"connections-{name}-{'tls' if tls else 'clear'}",
        f"{about}{', inside TLS' if tls else ''}",
        function,
        listener="http" if tls else "grpc",
        tls=tls,
        inside_tls=tls,
        **({"name": WIDE} if name == "tiny-windows" else {}),
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
    sent(
        "connections-slow-headers",
        "500 requests whose headers come byte by byte",
        floods.slow_headers,
        connections=500,
    ),
    sent(
        "connections-slow-bodies",
        "1,500 calls whose messages come byte by byte",
        floods.slow_bodies,
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
