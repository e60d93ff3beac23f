"""Routing keys that a caller has chosen for the arm of a canary."""

import itertools
import json
import time
from collections.abc import Iterator

from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.scene import SERVER, Scene
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import Client, request, selector
from outrigger_testenv.stack import Stack
from outrigger_testenv.variants import tiny

_MODEL = "keys/model"
_KEYS = 400
# If as many keys are drawn at random, the numbers in an arm differ by more than this once in a
# million.
_FAR = 70
_WAIT = 60.0
_DEFAULTS = {
    "minimum_time": "1h",
    "warm_up": {"requests": 50},
    "ramp": {"share": 0.5},
    "signals": {"latency": {"limits": {"off": True}}},
}
_WORD = (1 << 64) - 1


def _mixed(bits: int) -> int:
    """The mixing function of splitmix64."""
    bits = bits + 0x9E3779B97F4A7C15 & _WORD
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _WORD
    return bits ^ bits >> 31


def _draws(digest: str, keys: list[str]) -> list[int]:
    """The draws of keys by what a caller knows, as an earlier version drew them."""
    import tensorflow as tf

    words = tf.fingerprint([digest, *keys], method="farmhash64").numpy().view("<u8").ravel()
    salt, *hashes = (int(word) for word in words)
    return [_mixed(_mixed(salt) + word & _WORD) for word in hashes]


def _stack(scene: Scene) -> Stack:
    return scene.other(_trial)


def _trial(scene: Scene) -> Stack:
    """A stack with a canary that is the same model as live."""
    stack = Stack({**SERVER, "canary": {"defaults": _DEFAULTS}})
    stack.start()
    package = ModelPackage(scene.directory / "keys")
    tiny(package.directory, 1)
    stack.push(package, _MODEL)
    with Client(stack.serve.target) as client:
        client.load(_MODEL)
        digest = stack.push(package, _MODEL, "latest_canary", {"canary": "yes"})
        end = time.monotonic() + _WAIT
        while not _is_split(stack):
            if time.monotonic() > end:
                raise Broken("the trial does not begin")
            list(_arms(client, digest, [""] * 20))
    return stack


def _is_split(stack: Stack) -> bool:
    found = json.loads(stack.serve.run("canary", "status", _MODEL, "-o", "json").stdout)
    return any(each["phase"] == "PHASE_SPLIT" for each in found.get("canaries", []))


def _arms(client: Client, digest: str, keys: list[str]) -> Iterator[bool]:
    """By key, true if the canary answered."""
    for key in keys:
        message = request({"age": 30.0}, None)
        message.model.CopyFrom(selector(_MODEL))
        message.routing_key = key
        message.treatments.add().features["price"].number = 1.0
        yield client.call(message).model.digest == digest


def _attack(scene: Scene, turn: Turn) -> str:
    stack = _stack(scene)
    found = json.loads(stack.serve.run("canary", "status", _MODEL, "-o", "json").stdout)
    (trial,) = found["canaries"]
    digest = trial["canary_digest"]
    keys = [f"{turn.number}-{number}" for number in range(2 * _KEYS)]
    ordered = [key for _, key in sorted(zip(_draws(digest, keys), keys, strict=True))]
    with Client(stack.serve.target) as client:
        low, high = (sum(_arms(client, digest, part)) for part in _halves(ordered))
    if not low + high:
        raise Broken("the canary has no request, so the case shows nothing")
    if abs(low - high) > _FAR:
        raise Broken(f"chosen keys are in the arms that their caller chose: {low} and {high}")
    return f"the canary has {low} of {_KEYS} chosen keys, and {high} of the others"


def _halves(keys: list[str]) -> Iterator[list[str]]:
    return map(list, itertools.batched(keys, _KEYS, strict=True))


CASES = [
    Case(
        "canary-keys",
        f"{_KEYS} routing keys of which a caller has computed the arm",
        _attack,
        stack=_stack,
        neighbour=None,
        turns=1,
    )
]
