"""Requests: large, wrong and unread ones harm no other caller."""

from collections.abc import Callable
from typing import Any

from outrigger_testenv.attack import bodies
from outrigger_testenv.attack.case import MIB, Case, Turn
from outrigger_testenv.attack.floods import OPENED
from outrigger_testenv.attack.neighbour import Report
from outrigger_testenv.attack.scene import NEIGHBOUR, WIDE, Scene, during
from outrigger_testenv.stack import Stack

# Seconds in which attackers, which have the lowest priority, open their connections.
_OPEN = 180.0


def sent(
    name: str,
    about: str,
    function: Callable[..., Any],
    /,
    *,
    listener: str = "grpc",
    count: int = 1,
    check: Callable[[Scene], str] | None = None,
    prepare: Callable[[Scene, int], None] | None = None,
    tls: bool = False,
    opens: bool = False,
    stack: Callable[[Scene], Stack] = lambda scene: scene.stack,
    **arguments: Any,
) -> Case:
    """A case whose attackers send the same bytes to a listener and to a program that discards.

    `check` looks at the control plane while they still attack, and returns the outcome; if they
    open connections and hold them, it waits until they have them all.
    """

    def attack(scene: Scene, turn: Turn) -> str:
        address = scene.address(listener, stack(scene))
        seconds = turn.seconds + 60
        attackers = scene.attackers(function, count, address=address, seconds=seconds, **arguments)
        with attackers as started:
            turn.wait()
            for each in started if opens else ():
                each.wait_until(lambda each=each: OPENED in each.log.read_text(), _OPEN)
            return check(scene) if check else serves(scene, stack(scene))

    def discard(scene: Scene, turn: Turn) -> str:
        during(scene, turn, function, count, address=scene.discards(tls), **arguments)
        return ""

    def neighbour(scene: Scene, turn: Turn) -> Report:
        return scene.neighbour(turn, stack(scene))

    return Case(
        name, about, attack, discard, prepare, stack=stack, neighbour=neighbour, repeats=True
    )


def serves(scene: Scene, stack: Stack) -> str:
    """A new caller is answered on both listeners. Raises Broken."""
    scene.check_answers(stack)
    return "others are served"


def _entries(size: int, every: float) -> Case:
    return sent(
        f"requests-map-{size}",
        f"four callers, {size} MiB of empty map entries, deadlines of 200 ms",
        bodies.empty_entries,
        count=4,
        name=NEIGHBOUR,
        size=size * MIB,
        every=every,
    )


def _json(kind: str, about: str, size: int = 16) -> Case:
    return sent(
        f"requests-json-{kind}",
        f"two callers, {size} MiB of JSON: {about}",
        bodies.json_body,
        listener="http",
        count=2,
        tls=True,
        kind=kind,
        size=size * MIB,
        every=1.0,
    )


CASES = [
    sent(
        "requests-unread",
        "500 small Explains whose answers nobody reads",
        bodies.unread,
        name=WIDE,
        calls=500,
        treatments=5000,
    ),
    _entries(4, 0.5),
    _entries(32, 4.0),
    sent(
        "requests-user-object",
        "four callers, 16 MiB of empty values in `user_object`",
        bodies.user_object,
        count=4,
        name=NEIGHBOUR,
        size=16 * MIB,
        every=2.0,
    ),
    sent(
        "requests-outputs",
        "four callers, 16 MiB of names of outputs",
        bodies.outputs,
        count=4,
        name=NEIGHBOUR,
        size=16 * MIB,
        every=2.0,
    ),
    _json("nesting", "objects in objects"),
    _json("lists", "empty lists"),
    _json("numbers", "a feature of 8 million numbers"),
    _json("treatments", "empty treatments"),
    sent(
        "requests-bomb-grpc",
        "eight callers, 32 MiB of empty map entries in 32 KiB of gzip",
        bodies.bomb,
        count=8,
        name=NEIGHBOUR,
        size=32 * MIB,
        every=0.5,
    ),
    sent(
        "requests-bomb-json",
        "eight callers, 32 MiB of numbers in JSON in 32 KiB of gzip",
        bodies.json_body,
        listener="http",
        count=8,
        tls=True,
        kind="numbers",
        size=32 * MIB,
        every=0.5,
        compressed=True,
    ),
    sent("requests-lengths", "messages with wrong lengths", bodies.wrong_lengths, name=NEIGHBOUR),
    sent(
        "requests-json-lengths",
        "bodies over HTTP with wrong lengths",
        bodies.wrong_json_lengths,
        listener="http",
        tls=True,
    ),
]
