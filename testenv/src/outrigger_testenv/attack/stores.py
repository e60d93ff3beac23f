"""A store whose disk is full when the control plane starts."""

from outrigger_testenv import disks
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.scene import NEIGHBOUR, SERVER, Scene
from outrigger_testenv.client import Client
from outrigger_testenv.stack import Stack


def _served(scene: Scene) -> Stack:
    """A stack that has served the neighbour's model."""
    stack = Stack(SERVER, [{"name": NEIGHBOUR, "preload": True}], start=False)
    stack.registry.start()
    stack.push(scene.package, NEIGHBOUR)
    stack.engine.start()
    stack.serve.start()
    return stack


def _stack(scene: Scene) -> Stack:
    return scene.other(_served)


def _attack(scene: Scene, turn: Turn) -> str:
    stack = _stack(scene)
    # The model answers from what is there, without a registry.
    stack.registry.stop()
    try:
        with disks.full(stack):
            stack.engine.start()
            stack.serve.start()
            with Client(stack.serve.target) as client:
                client.load(NEIGHBOUR)
            if "the disk is full" not in stack.serve.process.log.read_text():
                raise Broken("the log does not name the disk, so the case may show nothing")
    except disks.NoMounts:
        return "not run: needs root's rights"
    return "the models on the disk are served"


CASES = [
    Case(
        "store-full",
        "a store without room when the control plane starts",
        _attack,
        # The processes end and start again.
        probes=(),
        stack=_stack,
        neighbour=None,
        turns=1,
    )
]
