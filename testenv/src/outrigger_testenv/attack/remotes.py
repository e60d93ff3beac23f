"""An engine on a server of the Open Inference Protocol that lies, beside a healthy model: each call
fails with a reason, and the model serves again when the server does.
"""

import sys
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from outrigger_testenv.attack import lying_server, neighbour
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.neighbour import Report
from outrigger_testenv.attack.scene import SERVER, Scene
from outrigger_testenv.builder import ModelPackage, tree_package
from outrigger_testenv.client import Client
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.features import TREATMENT, USER, numeric
from outrigger_testenv.oip import elsewhere
from outrigger_testenv.oip.elsewhere import OFFERS, USERS
from outrigger_testenv.processes import Process, free_ports, listens
from outrigger_testenv.stack import Stack

_REMOTE, _HEALTHY = "bad/remote", "good/trees"
# The deadline of a call to the lying server, and the time until the model serves again.
_DEADLINE, _AGAIN = 2.0, 60.0
_CALLS = 3


def _start(scene: Scene) -> Stack:
    """A stack with the lying server as an engine, which is honest, and trees in the process."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", lying_server.__name__, str(port)]
    server = Process("lying server", command, scene.directory / "lying-server.log")
    server.start()
    server.wait_until(lambda: listens(port))
    remote = {"kind": "oip", "endpoint": f"http://127.0.0.1:{port}"}
    engines = {"remote": remote, "trees": {"kind": "trees"}}
    stack = Stack({**SERVER, "engines": engines}, start=False, engine=False)
    stack.start()
    packages = {_REMOTE: _remote(scene.directory / "remote"), _HEALTHY: _trees(scene)}
    with Client(stack.serve.target) as client:
        for name, package in packages.items():
            stack.push(package, name)
            client.load(name)
    return stack


def _remote(directory: Path) -> ModelPackage:
    return elsewhere.of_rows(directory, lying_server.MODEL, lying_server.SCALE)


def _trees(scene: Scene) -> ModelPackage:
    import xgboost

    features = (
        numeric("age", entity=USER, default=30),
        numeric("price", entity=TREATMENT, required=True),
    )
    table = np.random.default_rng(1).uniform(0, 50, (500, 2)).astype("f4")
    data = xgboost.DMatrix(table, table.sum(axis=1), feature_names=["age", "price"])
    return tree_package(xgboost.train({}, data, 5), features, scene.directory / "trees")


def _stack(scene: Scene) -> Stack:
    return scene.other(_start)


def _tell(stack: Stack, lie: str) -> None:
    """Sets the lie of the server."""
    endpoint = stack.serve.config["engines"]["remote"]["endpoint"]
    request = urllib.request.Request(f"{endpoint}/lie/{lie}", b"", method="POST")
    urllib.request.urlopen(request, timeout=10).close()


def _attack(lies: list[str], scene: Scene, turn: Turn) -> str:
    stack, reasons = _stack(scene), set()
    for lie in lies:
        _tell(stack, lie)
        reasons |= {_failed(stack, lie) for _ in range(_CALLS)}
        _tell(stack, "none")
        _serves_again(stack, lie)
    turn.wait()
    return ", ".join(sorted(reasons))


def _failed(stack: Stack, lie: str) -> str:
    """The reason of a call that must fail."""
    with Client(stack.serve.target, _DEADLINE) as client:
        try:
            client.predict(_REMOTE, USERS, OFFERS)
        except OutriggerError as error:
            return error.reason or error.code.name
    raise Broken(f"{lie}: the answer became scores")


def _serves_again(stack: Stack, lie: str) -> None:
    sums = np.add.outer(USERS["age"].to_numpy(), OFFERS["price"].to_numpy())
    own = lying_server.SCALE * sums.ravel()

    def serves() -> bool:
        with suppress(OutriggerError):
            frame = client.predict(_REMOTE, USERS, OFFERS)
            if not np.allclose(frame["score"], own):
                raise Broken(f"after {lie}: {frame['score'].tolist()}")
            return True
        return False

    with Client(stack.serve.target, _DEADLINE) as client:
        client.wait_until(serves, _AGAIN, f"scores after {lie}")


def _neighbour(scene: Scene, turn: Turn) -> Report:
    target, load = _stack(scene).serve.target, neighbour.steady(turn.rate)
    return neighbour.call(target, _HEALTHY, scene.directory / "trees", turn.seconds, load)


def _case(name: str, about: str, lies: list[str]) -> Case:
    return Case(
        f"remote-{name}",
        about,
        partial(_attack, lies),
        stack=_stack,
        neighbour=_neighbour,
        turns=1,
    )


CASES = [
    _case(
        "wrong",
        "a server that answers for another model or id, with other types, shapes and outputs",
        list(lying_server.CHANGES),
    ),
    _case(
        "endless",
        "a server that answers with lengths that lie, bombs, or never",
        lying_server.OTHERS,
    ),
]
