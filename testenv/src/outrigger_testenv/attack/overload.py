"""More requests than the engine can answer."""

from outrigger_testenv.attack import slow_calls
from outrigger_testenv.attack.bodies import predict
from outrigger_testenv.attack.broken import Late
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.neighbour import Report, call, steady
from outrigger_testenv.attack.scene import SERVER, Scene, during
from outrigger_testenv.client import Client, request, selector
from outrigger_testenv.stack import Stack

MODEL = "slow/model"
# About 400 answers a second, so that the load generator needs little of a core.
_SECONDS, _AT_ONCE = 0.0018, 1
_CAPACITY = 400
_GOODPUT = 0.9
# The rate of one of five callers with its share, and of one that sends ten times as much.
_MODEST = _CAPACITY // 5


def _slow(scene: Scene) -> Stack:
    """A stack whose engine answers about 400 requests a second."""
    package = slow_calls.package(scene.directory / "slow", _SECONDS)
    stack = Stack({**SERVER, "engine": {"max_in_flight": _AT_ONCE}}, start=False)
    stack.start()
    stack.push(package, MODEL)
    with Client(stack.serve.target) as client:
        client.load(MODEL)
    return stack


def _stack(scene: Scene) -> Stack:
    return scene.other(_slow)


def _call(scene: Scene, seconds: float, *load: str) -> Report:
    package = scene.directory / "slow"
    return call(_stack(scene).serve.target, MODEL, package, seconds, load)


def _goodput(scene: Scene, turn: Turn) -> str:
    at = _call(scene, turn.seconds, "--max", "--in-flight", "8", "--timeout", "1s").rate
    beyond = _call(scene, turn.seconds, "--rate", f"{4 * at:.0f}", "--timeout", "1s").rate
    if beyond < _GOODPUT * at:
        raise Late(f"{beyond:.0f} answers a second at 4 times the capacity of {at:.0f}")
    return f"{beyond:.0f} answers a second, capacity {at:.0f}"


def _modest(scene: Scene, turn: Turn) -> Report:
    return _call(scene, turn.seconds, *steady(_MODEST))


def _content() -> str:
    message = request({"age": 30.0}, None)
    message.model.CopyFrom(selector(MODEL))
    message.treatments.add().features["price"].number = 1.0
    return message.SerializeToString().hex()


def _greedy(scene: Scene, turn: Turn) -> str:
    _send(scene, turn, 10 * _MODEST)
    return "others keep their share"


def _fair(scene: Scene, turn: Turn) -> str:
    _send(scene, turn, _MODEST)
    return ""


def _send(scene: Scene, turn: Turn, rate: int) -> None:
    address = _stack(scene).serve.target
    during(scene, turn, predict, address=address, content=_content(), rate=rate)


CASES = [
    Case(
        "overload-goodput",
        "requests at four times the capacity",
        _goodput,
        stack=_stack,
        neighbour=None,
    ),
    Case(
        "overload-caller",
        "a caller that sends ten times its share",
        _greedy,
        _fair,
        stack=_stack,
        neighbour=_modest,
        repeats=True,
    ),
]
