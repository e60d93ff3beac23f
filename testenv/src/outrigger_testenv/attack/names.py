"""Names and tags that are asked for once, or do not exist."""

import os
import threading

from outrigger_testenv import images
from outrigger_testenv.attack.asking import ask, ask_tags, ask_unknown
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.memory import processor_seconds
from outrigger_testenv.attack.pieces import whole
from outrigger_testenv.attack.requests import sent
from outrigger_testenv.attack.scene import Scene

_TAGS = 2000
# Following tags may take this share of a core afterwards.
_SHARE = 0.25
_SETTLE, _WATCHED = 5.0, 4.0
_UNKNOWN = 120.0
# More than the names that may be without an answer.
_REFUSED = [f"refused/{number}" for number in range(300)]
# Time for unknown names to pile up before a good one is asked for.
_BEFORE = 8.0
_SOON = 10.0


def _many_tags(scene: Scene, number: int) -> None:
    repository = f"models/tags/{number}"
    digest = scene.stack.push(scene.package, f"tags/{number}")
    scene.stack.registry.tag_many(repository, digest, [f"t{at}" for at in range(_TAGS)])


def _attack_tags(scene: Scene, turn: Turn) -> str:
    arguments = {"name": f"tags/{turn.number}", "tags": _TAGS, "rate": 1000}
    address = scene.address("grpc")
    with scene.attackers(ask_tags, address=address, seconds=turn.seconds + 60, **arguments):
        turn.wait()
    pid = scene.stack.serve.process.pid
    threading.Event().wait(_SETTLE)
    before = processor_seconds(pid)
    threading.Event().wait(_WATCHED)
    share = (processor_seconds(pid) - before) / _WATCHED
    if share > _SHARE:
        raise Broken(f"following the tags takes {share:.2f} of a core")
    return f"following them takes {share:.2f} of a core"


def _discard_tags(scene: Scene, turn: Turn) -> str:
    arguments = {"name": "tags/0", "tags": _TAGS, "rate": 1000}
    address = scene.discards(False)
    with scene.attackers(ask_tags, address=address, seconds=turn.seconds + 60, **arguments):
        turn.wait()
    return ""


def _refused_models(scene: Scene, number: int) -> None:
    layer = images.compressed_tar({"data/metadata.json": whole(b"{}")})
    for name in _REFUSED if number == 0 else ():
        scene.push([layer], name, "refused", images.COMPRESSED)


def _new_models(scene: Scene) -> str:
    """A new model loads while other names are asked for, and so does an administrator's."""
    threading.Event().wait(_BEFORE)
    for name in ("new", "admin"):
        label = f"{name}-{os.urandom(4).hex()}"
        scene.stack.push(scene.package, f"good/{label}", labels={"turn": label})
        if name == "admin":
            scene.administer(f"good/{label}")
        elif error := scene.load(f"good/{label}", _SOON):
            raise Broken(f"a new model meanwhile: {error}")
    return "new models load"


CASES = [
    sent(
        "names-refused",
        f"{len(_REFUSED)} names whose versions are refused, asked for all the time",
        ask,
        check=_new_models,
        prepare=_refused_models,
        names=_REFUSED,
        rate=300,
    ),
    Case(
        "names-tags",
        f"{_TAGS} tags of a model, asked for once each",
        _attack_tags,
        _discard_tags,
        _many_tags,
    ),
    sent(
        "names-unknown",
        f"{_UNKNOWN:g} unknown names a second",
        ask_unknown,
        check=_new_models,
        prefix="unknown",
        rate=_UNKNOWN,
    ),
]
