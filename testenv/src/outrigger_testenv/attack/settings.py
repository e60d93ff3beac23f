"""Settings that open the control plane to others, and text of packages that commands print."""

import json
import re
import subprocess
from collections.abc import Callable

from helm_python import HelmError

from outrigger_testenv import images
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.scene import Scene
from outrigger_testenv.binary import outrigger
from outrigger_testenv.chart.render import render
from outrigger_testenv.processes import free_ports
from outrigger_testenv.stack import Stack, merge

_OPEN = ["predict", "read", "change"]
_WARNING = "anybody who reaches this listener may change models"
# Values of the chart that would put a credential into an object which is no Secret.
_CREDENTIALS = {
    "config": {
        "engines": {"far": {"kind": "oip", "endpoint": "a:1", "headers": {"x-api-key": "s"}}}
    },
    "proxy": {"https": "http://user:password@proxy:3128"},
    "extraEnv": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "s"}],
}
# A terminal's title, its screen, a line of its own, and text in the other direction.
_HOSTILE = "m\x1b]0;title\x07\x1b[2J\nforged\x9b1m\u202e"
_CONTROL = re.compile("[^\n -~\u00a0-\u2027\u202f-\u2065\u206a-\uffff]")


def _admin(_: Scene, __: Turn) -> str:
    (port,) = free_ports(1)
    overrides = {"server": {"admin": f"0.0.0.0:{port}"}, "auth": {"anonymous": _OPEN}}
    with Stack(overrides, engine=False) as stack:
        if _WARNING not in stack.serve.process.log.read_text():
            raise Broken("it starts without a warning")
    return "warned at the start"


def _chart(_: Scene, __: Turn) -> str:
    required = {
        "image": {"repository": "registry.example/outrigger"},
        "config": {"images": {"repository": "registry.example/models"}},
    }
    for key, value in _CREDENTIALS.items():
        try:
            render(merge(required, {key: value}))
        except HelmError as error:
            if "would stand" not in str(error):
                raise Broken(f"{key}: {error}") from None
        else:
            raise Broken(f"{key}: a credential stands in an object that is no Secret")
    return f"{len(_CREDENTIALS)} refused"


def _text(scene: Scene, turn: Turn) -> str:
    """A package whose names, texts and file names are hostile, on a laptop."""
    package = scene.directory / f"text-{turn.number}"
    for name, content in images.files_of(scene.package.directory).items():
        file = package / name.removeprefix("data/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    metadata = json.loads((package / "metadata.json").read_text())
    metadata[_HOSTILE] = _HOSTILE
    metadata["framework"] = _HOSTILE
    (package / "metadata.json").write_text(json.dumps(metadata))
    (package / _HOSTILE).write_text(_HOSTILE)
    for arguments in (("validate", package), ("push", package, f"oci:{package}-{_HOSTILE}:latest")):
        command = [outrigger(), *arguments]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        shown = ended.stdout + ended.stderr
        if raw := _CONTROL.search(shown):
            raise Broken(f"{arguments[0]} prints {raw[0]!r}")
        if "\nforged" in shown:
            raise Broken(f"{arguments[0]} prints a line of the package's")
    return "printed as escapes"


def _case(name: str, about: str, attack: Callable[[Scene, Turn], str]) -> Case:
    return Case(name, about, attack, probes=(), neighbour=None, turns=1)


CASES = [
    _case("settings-admin", "an admin listener on which anybody may change models", _admin),
    _case("settings-chart", "values of the chart with credentials", _chart),
    _case("command-text", "control characters of a package in what commands print", _text),
]
