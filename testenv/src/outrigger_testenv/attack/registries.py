"""Registries that lie, drip and redirect."""

from collections.abc import Callable, Sequence

from outrigger_testenv import images
from outrigger_testenv.attack import lying
from outrigger_testenv.attack.asking import ask
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import MIB, Case, Turn
from outrigger_testenv.attack.downloads import fetch
from outrigger_testenv.attack.packages import padded
from outrigger_testenv.attack.scene import Scene, during

# A good model must be loaded within this time, whatever other registries do: they drip for longer.
# Packing 600 MiB takes a quarter of it on a machine that does much else.
_SOON = 60.0


def _discard(kind: str) -> Callable[[Scene, Turn], str]:
    def discard(scene: Scene, turn: Turn) -> str:
        host = vars(scene.lying)[lying.KINDS[kind]]
        url = f"http://{host}/v2/{kind}-{turn.number}/model/blobs/sha256:0"
        during(scene, turn, fetch, url=url)
        return ""

    return discard


def _beside_good(name: str, about: str, size: int = 0) -> Case:
    """A good model, with a file of this size, must load while hostile pulls drip."""
    layers: list[bytes] = []

    def prepare(scene: Scene, number: int) -> None:
        if not layers:
            layers.append(padded(scene.files, size))
        model = f"good/{name}-{number}"
        scene.push(layers, model, model, images.COMPRESSED)

    def attack(scene: Scene, turn: Turn) -> str:
        count = lying.AT_ONCE[name]
        first = turn.number * count
        names = [f"bad/{name}-{number}" for number in range(first, first + count)]
        arguments = {"address": scene.address("grpc"), "names": names, "seconds": 120}
        with scene.attackers(ask, **arguments) as (attacker,):
            attacker.wait_until(lambda: _pulled(scene, names))
            if error := scene.load(f"good/{name}-{turn.number}", _SOON):
                raise Broken(f"a good model meanwhile: {error}")
            turn.wait()
        return "a good model loads"

    return Case(f"registry-{name}", about, attack, _discard(name), prepare)


def _pulled(scene: Scene, names: Sequence[str]) -> bool:
    return set(names) <= scene.stack.client().models().keys()


def _refused(
    kind: str,
    about: str,
    *reasons: str,
    check: Callable[[Scene, Sequence[str]], None] = lambda *_: None,
    timeout: float = 60.0,
    fault: str = "",
) -> Case:
    def attack(scene: Scene, turn: Turn) -> str:
        name = f"bad/{kind}-{turn.number}"
        got = scene.expect(name, *reasons, timeout=timeout, fault=fault)
        turn.wait()
        check(scene, [name])
        return got

    return Case(f"registry-{kind}", about, attack, _discard(kind))


def _followed(scene: Scene, names: Sequence[str]) -> None:
    if not lying.caught(scene.lying):
        raise Broken("no redirect was followed, so the case shows nothing")
    _kept(scene, names)


def _kept(scene: Scene, _: Sequence[str]) -> None:
    secrets = (lying.PASSWORD, lying.IDENTITY, "authorization")
    caught = lying.caught(scene.lying).lower()
    if any(each in caught for each in secrets):
        raise Broken("a stranger was sent credentials")


# Attempts are repeated longer than a caller waits, who is answered at the deadline.
_WAITING, _WAIT = ("REGISTRY_UNAVAILABLE", "MODEL_LOADING"), 8.0

CASES = [
    _beside_good("drip", "four layers that drip a byte in 5 s"),
    _beside_good("claim", "three layers that claim the whole store and drip", 600 * MIB),
    _refused(
        "redirect",
        "a layer's redirect whose target asks for credentials",
        "REGISTRY_DENIED",
        "REGISTRY_UNAVAILABLE",
        check=_followed,
    ),
    _refused(
        "token",
        "a token service that redirects the identity token",
        "REGISTRY_DENIED",
        "REGISTRY_UNAVAILABLE",
        check=_kept,
        fault="redirects a request with an identity token",
    ),
    _refused("more", "a layer of 10 bytes that sends 4 GiB", "IMAGE_INVALID"),
    _refused("less", "a layer that ends before its size", *_WAITING, timeout=_WAIT),
    _refused("endless", "a manifest of 4 GiB", "IMAGE_INVALID", "REGISTRY_UNAVAILABLE"),
    _refused("silent", "an answer without a byte", *_WAITING, timeout=_WAIT),
    _refused("headers", "headers that drip a byte in 5 s", *_WAITING, timeout=_WAIT),
    _refused(
        "audit",
        "a media type that looks like a line of the log",
        "IMAGE_INVALID",
        check=Scene.check_text,
    ),
    _refused(
        "audit-platform",
        "platforms of an index that look like lines of the log",
        "IMAGE_INVALID",
        check=Scene.check_text,
    ),
]
