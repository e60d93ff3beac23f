"""A caller that may only predict, and would decide a canary's trial beside honest callers."""

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv import variants
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.scene import SERVER, Scene
from outrigger_testenv.canaries import QUICK, wait_for_decisions
from outrigger_testenv.client import Client, request, selector
from outrigger_testenv.stack import Stack, merge

_MODEL = "keys/model"
_TOKEN = "the-token-of-the-attacker"
_LANES = 8
# The honest requests are too few for a promotion, and the attacker's would be enough.
_LEAST, _HONEST, _SHOWN, _FRESH = 300, 300, 300, 700
_DEFAULTS = merge(QUICK, {"minimum_requests": _LEAST, "signals": {"score_drift": {"margin": 0.5}}})
_USUAL, _ODD = (18, 80), (500, 600)
# The judge looks once a second.
_JUDGED = 2.5


class _Callers:
    """Callers with random features, and with this token or without one."""

    def __init__(self, client: Client, token: str = ""):
        self._client = client
        self._draw = np.random.default_rng(1)
        self._metadata = [("authorization", f"Bearer {token}")] if token else []

    def predict(self, keys: Iterable[str], ages: tuple[int, int] = _USUAL) -> None:
        """Predicts for users of these ages, with these routing keys."""
        self._ask(self._client.prediction.Predict, keys, ages)

    def shown(self, keys: Iterable[str]) -> list[str]:
        """Those of the keys whose arm is the canary, as Explain shows it."""
        answers = self._ask(self._client.prediction.Explain, keys, _USUAL)
        return [each.request_id for each in answers if each.model.arm == pb.ARM_CANARY]

    def _ask(self, method: Callable[..., Any], keys: Iterable[str], ages: tuple[int, int]) -> list:
        messages = [self._message(key, float(self._draw.integers(*ages))) for key in keys]
        with ThreadPoolExecutor(_LANES) as lanes:
            asked = lanes.map(
                lambda each: method(each, timeout=30, metadata=self._metadata), messages
            )
            return list(asked)

    def _message(self, key: str, age: float) -> pb.PredictRequest:
        message = request({"age": age}, None, key=key)
        message.model.CopyFrom(selector(_MODEL))
        message.treatments.add().features["price"].number = self._draw.normal(0, 3)
        return message


def _stack(scene: Scene) -> Stack:
    return scene.other(_trial)


def _trial(scene: Scene) -> Stack:
    """A stack with a canary that is the same model as live, after the warm-up."""
    tokens = scene.directory / "tokens"
    tokens.mkdir()
    (tokens / "attacker").write_text(_TOKEN)
    auth = {"tokens": str(tokens), "anonymous": ["predict", "read"]}
    config = {**SERVER, "auth": auth, "canary": {"defaults": _DEFAULTS}}
    stack = Stack(config, start=False)
    stack.start()
    package = variants.tiny_builder().build(variants.good, scene.directory / "keys")
    stack.push(package, _MODEL)
    with Client(stack.serve.target) as client:
        client.load(_MODEL)
        stack.push(package, _MODEL, "latest_canary", {"canary": "yes"})
        honest = _Callers(client)
        client.wait_until(lambda: honest.predict([""] * _LANES) or _is_split(stack))
    return stack


def _status(stack: Stack) -> dict[str, Any]:
    return json.loads(stack.serve.run("canary", "status", _MODEL, "-o", "json").stdout)


def _is_split(stack: Stack) -> bool:
    return any(each["phase"] == "PHASE_SPLIT" for each in _status(stack).get("canaries", []))


def _attack(scene: Scene, _: Turn) -> str:
    stack = _stack(scene)
    with Client(stack.serve.target) as client:
        honest, attacker = _Callers(client), _Callers(client, _TOKEN)
        honest.predict([""] * _HONEST)
        chosen = attacker.shown(f"shown-{number}" for number in range(_SHOWN))
        if not chosen:
            raise Broken("no key is shown on the canary, so the case shows nothing")
        attacker.predict(chosen, _ODD)
        attacker.predict(f"fresh-{number}" for number in range(_FRESH))
        time.sleep(_JUDGED)
        if decisions := _status(stack).get("decisions"):
            raise Broken(f"one caller has decided: {decisions[0]['reason']}")
        honest.predict([""] * 3 * _LEAST)
        (decision,) = wait_for_decisions(stack.serve, _MODEL)
    if decision["outcome"] != "OUTCOME_PROMOTED":
        raise Broken(f"honest callers do not decide: {decision['reason']}")
    return "honest callers decide"


CASES = [
    Case(
        "canary-keys",
        "keys whose arm a caller knows, with odd features, and fresh ones beyond its part",
        _attack,
        stack=_stack,
        neighbour=None,
        turns=1,
    )
]
