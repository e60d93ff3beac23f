"""Checks 56 and 63 to 65: many requests at once."""

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from outrigger_testenv.conformance_oip import http
from outrigger_testenv.conformance_oip.check import Check, rest, rpc
from outrigger_testenv.conformance_oip.checks.request import calls, sends
from outrigger_testenv.conformance_oip.http import JSON
from outrigger_testenv.conformance_oip.rpc import infer, outcome, x
from outrigger_testenv.conformance_oip.server import STATISTICS, Server
from outrigger_testenv.conformance_oip.tensors import tensor, told

_AT_ONCE = 16
_ROUNDS = 8
_INPUT = tensor([1, 2], [1, 2])
# Requests that wait in the queue of the slow model when their clients go.
_LEAVING, _ATTEMPTS = 2, 3
# Longest wait for the slow model to be idle, and pause between looks, in seconds.
_IDLE, _LOOK_EVERY = 15.0, 0.1
# Time of the first run that the requests of others fall into, in seconds.
_DURING = 0.2
_TIMEOUT = 100_000
# Deadline in seconds that most of the requests at once cannot meet: a server may let others wait.
_SOON = 3.0


def _at_once(act: Callable[[int], str], count: int) -> list[str]:
    """The results of acts that run at the same time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(act, range(count)))


def _own_over_rest(server: Server) -> str:
    """Reports if each of many requests gets its own rows and the outputs that it asked for."""

    def act(number: int) -> str:
        outputs, expected = _asked(number)
        inputs = [
            tensor([number, 0], [1, 2], name="a"),
            tensor([1, 0], [1, 2], name="b"),
        ]
        request = {"inputs": inputs, "outputs": [{"name": name} for name in outputs]}
        seen = told(server.infer("pair", request))
        own = [f"200 {each.format('')}" for each in expected]
        return "own" if seen in own else f"{number}: {seen}"

    return _worst(_at_once(act, _AT_ONCE * _ROUNDS))


def _own_over_grpc(server: Server) -> str:
    """The same over gRPC."""

    def act(number: int) -> str:
        outputs, expected = _asked(number)
        inputs = [x([1, 2], name="a", raw=[number, 0]), x([1, 2], name="b", raw=[1, 0])]
        request = infer("pair", *inputs)
        for name in outputs:
            request.outputs.add(name=name)
        seen = server.answers(request)
        own = [f"OK {each.format(' raw')}" for each in expected]
        return "own" if seen in own else f"{number}: {seen}"

    return _worst(_at_once(act, _AT_ONCE * _ROUNDS))


def _asked(number: int) -> tuple[list[str], list[str]]:
    """The outputs that a request asks for, none for all, and the answers that are right: all
    outputs may come in any order.
    """
    total = f"sum FP32 [1,2]{{0}} [{number + 1},0]"
    difference = f"difference FP32 [1,2]{{0}} [{number - 1},0]"
    both = [f"{total}; {difference}", f"{difference}; {total}"]
    choices = [(["sum"], [total]), (["difference"], [difference]), ([], both)]
    return choices[number % len(choices)]


def _worst(results: list[str]) -> str:
    return next((each for each in results if each != "own"), "own")


def _overload(server: Server) -> str:
    """The answers to more requests than the slow model may have, and how they are refused."""

    def act(_: int) -> str:
        answer = server.infer("slow", {"inputs": [_INPUT]})
        retry = "with" if "retry-after" in answer.headers else "without"
        return "200" if answer.status == 200 else f"{answer.status} {retry} Retry-After"

    return _counted(_at_once(act, _AT_ONCE))


def _overload_of_calls(server: Server) -> str:
    request = infer("slow", x([1, 2], raw=[1, 2]))

    def act(_: int) -> str:
        answer = outcome(lambda: f"OK {server.begin(request, _SOON).result()}")
        return answer.partition(" ")[0]

    return _counted(_at_once(act, _AT_ONCE))


def _counted(results: list[str]) -> str:
    counts = sorted(Counter(results).items())
    return ", ".join(f"{result} ({count})" for result, count in counts)


def _runs(server: Server) -> int:
    """Rows that the slow model has been run with."""
    statistics = server.get("/v2/models/slow/stats").json()
    return sum(each["inference_count"] for each in statistics["model_stats"])


def _settled(server: Server) -> int:
    """The rows when their number does not change for longer than a run. Raises TimeoutError."""
    until, last, since = time.monotonic() + _IDLE, -1, time.monotonic()
    while time.monotonic() < until:
        now = _runs(server)
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() - since > 2.0:
            return last
        time.sleep(_LOOK_EVERY)
    raise TimeoutError("the slow model does not become idle")


def _left(begin: Callable[[Server], Callable[[], object]]) -> Callable[[Server], str]:
    """How many requests ran whose clients had left the queue, at the best of some attempts: on a
    busy machine all may run at once. `begin` sends a request, and returns what leaves.
    """

    def act(server: Server) -> str:
        answers = []
        for _ in range(_ATTEMPTS):
            answers.append(_leaving(server, begin))
            if " 0 of " in answers[-1]:
                break
        return answers[-1]

    return act


def _leaving(server: Server, begin: Callable[[Server], Callable[[], object]]) -> str:
    before = _settled(server)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: told(server.infer("slow", {"inputs": [_INPUT]})))
        time.sleep(_DURING)
        waiting = [begin(server) for _ in range(_LEAVING)]
        time.sleep(_DURING)
        for leave in waiting:
            leave()
        answer = first.result()
    return f"{answer} and {_settled(server) - before - 1} of {_LEAVING} that left"


def _begin_over_rest(server: Server) -> Callable[[], object]:
    body = json.dumps({"inputs": [_INPUT]}).encode()
    headers = {"Content-Type": JSON, "Content-Length": len(body)}
    link = http.connection(server.place.rest)
    link.sendall(http.head("POST", "/v2/models/slow/infer", headers) + body)
    return link.close


def _begin_over_grpc(server: Server) -> Callable[[], object]:
    return server.begin(infer("slow", x([1, 2], raw=[1, 2]))).cancel


CHECKS = [
    Check(
        56,
        "among many requests each gets its own outputs and rows",
        [
            rest("pair", "own", _own_over_rest),
            rpc("pair", "own", _own_over_grpc),
        ],
    ),
    Check(
        63,
        "overload is 429 or 503 with Retry-After",
        [
            rest(
                "16 at once",
                ("*429 with Retry-After (*)", "*503 with Retry-After (*)"),
                _overload,
            ),
            rpc(
                "16 at once, of 3 s",
                ("*UNAVAILABLE: (*)*", "*RESOURCE_EXHAUSTED: (*)*"),
                _overload_of_calls,
            ),
        ],
    ),
    Check(
        64,
        "the parameter `timeout` ends a request",
        [
            rest(
                "0.1 s",
                '504 {"error":"*"}',
                sends(_INPUT, model="slow", parameters={"timeout": _TIMEOUT}),
            ),
            rpc(
                "0.1 s",
                "DEADLINE_EXCEEDED: *",
                calls(
                    x([1, 2], raw=[1, 2]),
                    model="slow",
                    parameters={"timeout": {"int64_param": _TIMEOUT}},
                ),
            ),
        ],
    ),
    Check(
        65,
        "requests of clients that left do not run",
        [
            rest(
                "2 in the queue",
                "200 * and 0 of 2 that left",
                _left(_begin_over_rest),
                needs=STATISTICS,
            ),
            rpc(
                "2 in the queue",
                "200 * and 0 of 2 that left",
                _left(_begin_over_grpc),
                needs=STATISTICS,
            ),
        ],
    ),
]
