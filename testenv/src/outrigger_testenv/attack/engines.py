"""Models that kill or hold the engine, beside nine healthy ones."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from outrigger_testenv import killers, slow, variants
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.neighbour import call
from outrigger_testenv.attack.scene import SERVER, Scene
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import Client, request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.processes import ProcessError
from outrigger_testenv.stack import Stack

_HEALTHY = 9
# Requests a second to each healthy model, and their deadline.
_RATE, _DEADLINE = 5, "15s"
# How many times as many for the first of them.
_BUSY = 6
_SECONDS = 30.0
# The failures of requests whose deadline passed while the engine was away.
_AWAY = {"MODEL_LOADING", "ENGINE_UNAVAILABLE", "DEADLINE"}
_ASKED_EVERY = 0.5
# Seconds of the calls for runs that hold the engine.
_FLOOD = 10.0


def _nine(scene: Scene) -> Stack:
    """A stack with nine healthy models."""
    variants.tiny(scene.directory / "well", 1)
    stack = Stack(SERVER, start=False)
    stack.start()
    package = ModelPackage(scene.directory / "well")
    with Client(stack.serve.target) as client:
        for number in range(_HEALTHY):
            # Each has a version of its own.
            stack.push(package, f"well/{number}", labels={"number": str(number)})
            client.load(f"well/{number}")
    return stack


def _stack(scene: Scene) -> Stack:
    return scene.other(_nine)


@contextmanager
def _restarted(stack: Stack) -> Iterator[Counter[str]]:
    """Starts the engine again whenever it has ended, as the kubelet does; counts its deaths."""
    over, deaths = threading.Event(), Counter()

    def restart() -> None:
        while not over.wait(0.1):
            if not stack.engine.process.running:
                deaths["deaths"] += 1
                # It may be killed again before it answers.
                with suppress(ProcessError):
                    stack.engine.start()

    supervisor = threading.Thread(target=restart)
    supervisor.start()
    try:
        yield deaths
    finally:
        over.set()
        supervisor.join()


def _lost(scene: Scene, stack: Stack) -> Counter[str]:
    """The failures of requests to the nine healthy models, by reason."""
    package = scene.directory / "well"

    def ask(number: int) -> dict[str, int]:
        target = stack.serve.target
        # One is much busier than the others, and so in flight at most crashes.
        load = ("--rate", f"{_RATE * (1 if number else _BUSY)}", "--timeout", _DEADLINE)
        return call(target, f"well/{number}", package, _SECONDS, load).failures

    with ThreadPoolExecutor(_HEALTHY) as callers:
        lost = sum(map(Counter, callers.map(ask, range(_HEALTHY))), Counter())
    return lost


def _ask(stack: Stack, name: str, age: float, over: threading.Event) -> None:
    message = request({"age": age}, None)
    message.model.CopyFrom(selector(name))
    message.treatments.add().features["price"].number = 1.0
    with Client(stack.serve.target, 5.0) as client:
        while not over.wait(_ASKED_EVERY):
            with suppress(OutriggerError):
                client.call(message)


def _kill(stack: Stack, over: threading.Event) -> None:
    while not over.wait(5.0):
        stack.engine.process.kill()


def _attack(
    name: str, make: Callable[[Path], ModelPackage] | None, most: int, scene: Scene, turn: Turn
) -> str:
    stack, over = _stack(scene), threading.Event()
    act = partial(_kill, stack, over)
    if make:
        directory = scene.directory / f"killer-{name}-{turn.number}"
        stack.push(make(directory), f"bad/{name}-{turn.number}")
        act = partial(_ask, stack, f"bad/{name}-{turn.number}", killers.AGE, over)
    with _restarted(stack) as deaths:
        attacker = threading.Thread(target=act)
        attacker.start()
        try:
            lost = _lost(scene, stack)
        finally:
            over.set()
            attacker.join()
    if not deaths:
        raise Broken("the engine was not killed, so the case shows nothing")
    if make is None:
        # Nothing in the process can keep the engine up, but no model is blamed for it.
        lost = Counter({reason: count for reason, count in lost.items() if reason not in _AWAY})
    if lost:
        raise Broken(f"{sum(lost.values())} requests to healthy models failed: {dict(lost)}")
    if deaths["deaths"] > most:
        raise Broken(f"the engine was killed {deaths['deaths']} times instead of {most}")
    return f"the engine died {deaths['deaths']} times"


def _engine(name: str, about: str, make: Callable[[Path], ModelPackage] | None, most: int) -> Case:
    return Case(
        f"engine-{name}",
        about,
        partial(_attack, name, make, most),
        # The pod is not ready while its only engine is away.
        probes=("/healthz",),
        stack=_stack,
        neighbour=None,
        turns=1,
    )


def _held(scene: Scene, turn: Turn) -> str:
    """Holds the engine by runs without an end, which callers give up after 200 ms."""
    stack, name = _stack(scene), f"bad/held-{turn.number}"
    pipe = scene.directory / f"pipe-{turn.number}"
    stack.push(slow.at_a_call(scene.directory / f"held-{turn.number}", pipe), name)
    with Client(stack.serve.target) as client:
        client.load(name)
    with slow.flooded(stack.serve.target, name, _FLOOD, pipe):
        if lost := _lost(scene, stack):
            raise Broken(f"{lost.total()} requests to healthy models failed: {dict(lost)}")
    return "no request to a healthy model failed"


CASES = [
    Case(
        "engine-held",
        "40 calls a second of runs without an end, with deadlines of 200 ms",
        _held,
        probes=("/healthz", "/readyz"),
        stack=_stack,
        neighbour=None,
        turns=1,
    ),
    _engine("load", "a model that ends it at its load", killers.at_load, 2),
    _engine(
        "first-run", "a model that ends the engine at its first run", killers.at_its_first_run, 2
    ),
    _engine("request", "a model that ends it on a request", killers.at_a_call, 4),
    _engine("killed", "an engine that is killed every 5 s", None, 100),
]
