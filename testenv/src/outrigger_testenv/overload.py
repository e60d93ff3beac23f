"""A canary whose requests cost much of the engine's time, under a constant rate of requests."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import request, selector
from outrigger_testenv.load import Load, Report
from outrigger_testenv.stack import Stack
from outrigger_testenv.variants import good

# The time that callers wait for an answer, and the longest wait for a decision; in seconds.
DEADLINE = 1.0
PATIENCE = 180.0
# The requests before the canary is pushed, and those after the decision; the load reports its
# progress by thousands.
BEFORE = 2000
AFTERWARDS = 2000
# The size of the matrices of `costly`.
_SIZE = 192


@dataclass(frozen=True)
class Scenario:
    """A share of a rate of requests, and the time of a core that one on the canary costs."""

    share: float
    rate: float
    cost: float

    def __str__(self) -> str:
        return f"{self.share:.0%} of {self.rate:g}/s, {self.cost:g} s of a core"


SCENARIOS = tuple(
    Scenario(share, rate, cost)
    for share, rate in ((0.1, 400.0), (0.3, 300.0))
    for cost in (0.2, 0.05)
)


@dataclass(frozen=True)
class Overloaded:
    """The course of a trial: the callers since the split, those of them that failed, the number of
    seconds in which live's 99th percentile was more than twice that before the split, and the
    seconds in which the canary got requests.
    """

    callers: int
    failed: int
    slow_seconds: int
    outcome: str
    reason: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.outcome} after {self.seconds:.1f} s: {self.failed} of {self.callers} failed, "
            f"live slow for {self.slow_seconds} s; {self.reason}"
        )


def costly(loops: int) -> Callable:
    """The scores of the good model after so many needless multiplications of matrices."""

    def model(user, offer):
        import tensorflow as tf

        # The numbers depend on the input, so that TensorFlow cannot fold them into constants.
        rows = tf.tile(user[:1], [1, _SIZE]) + tf.reshape(tf.range(float(_SIZE)), [1, _SIZE])
        wide = tf.transpose(rows) @ rows

        def step(at, wide):
            return at + 1, tf.sin(wide @ wide)

        _, wide = tf.while_loop(lambda at, _: at < loops, step, (0, wide), parallel_iterations=1)
        return good(user, offer) + 1e-9 * tf.reduce_mean(wide)

    return model


def loops_of(cost: float) -> int:
    """The number of multiplications that take about `cost` seconds of a core here."""
    import tensorflow as tf

    few = 50
    inputs = (tf.constant([[40.0]]), tf.constant([[[1.0]]]))
    function = tf.function(costly(few))
    function(*inputs)
    took = []
    for _ in range(5):
        start = time.process_time()
        function(*inputs)
        took.append(time.process_time() - start)
    return max(1, round(few * cost / min(took)))


def messages(model: str) -> Sequence[Any]:
    """Requests of many users without a routing key, so that each counts."""
    draw = np.random.default_rng(1)
    made = []
    for age in draw.integers(18, 80, 500):
        offers = pd.DataFrame({"price": draw.normal(0, 3, 5).astype("float32")})
        message = request({"age": int(age)}, offers)
        message.model.CopyFrom(selector(model))
        made.append(message)
    return made


def settings(scenario: Scenario) -> Mapping[str, Any]:
    """The defaults of the stack's canaries: those of the product with the scenario's share."""
    return {"ramp": {"share": scenario.share}}


def run(
    stack: Stack, model: str, canary: ModelPackage, scenario: Scenario, directory: Path
) -> Overloaded:
    """Tries the canary of a served model under the scenario's load. Raises TimeoutError if it is
    not decided.
    """
    requests, rate = messages(model), scenario.rate
    with Load(stack.serve.target, requests, directory, deadline=DEADLINE, rate=rate) as load:
        load.wait_until(BEFORE)
        digest = stack.push(canary, model, "latest_canary")
        decision = _decision(stack, model, digest)
        load.wait_until(load.answered + AFTERWARDS)
        report = load.stop()
    return _overloaded(report, digest, decision)


def _decision(stack: Stack, model: str, digest: str) -> Mapping[str, Any]:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done = stack.serve.run("canary", "status", model, "-o", "json")
        found = json.loads(done.stdout) if done.returncode == 0 else {}
        for decision in found.get("decisions", []):
            if decision["canary_digest"] == digest:
                return decision
        time.sleep(0.5)
    raise TimeoutError(f"no decision within {PATIENCE} s: {json.dumps(found)}")


def _overloaded(report: Report, canary: str, decision: Mapping[str, Any]) -> Overloaded:
    course = sorted(report.course)
    with_canary = [due for due, _, digest, stood_in in course if digest == canary or stood_in]
    split, end = min(with_canary), max(with_canary)
    # The arm of a failed request is not known: it counts as live's.
    live = [
        (due - split, took if took >= 0 else math.inf)
        for due, took, digest, stood_in in course
        if digest != canary and not stood_in
    ]
    slow = 2 * float(np.percentile([took for at, took in live if at < 0], 99))
    seconds: dict[int, list[float]] = {}
    for at, took in live:
        if at >= 0:
            seconds.setdefault(int(at), []).append(took)
    since = [took for due, took, _, _ in course if due >= split]
    return Overloaded(
        callers=len(since),
        failed=sum(took < 0 for took in since),
        slow_seconds=sum(_share_above(slow, each) > 0.01 for each in seconds.values()),
        outcome=decision["outcome"],
        reason=decision["reason"],
        seconds=end - split,
    )


def _share_above(bound: float, latencies: Sequence[float]) -> float:
    return sum(latency > bound for latency in latencies) / len(latencies)
