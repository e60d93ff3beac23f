"""Batches: requests that run together, with the parameters of `batching.config`."""

from collections.abc import Callable

import grpc

from outrigger_testenv.conformance import models
from outrigger_testenv.conformance.client import Inputs, finished, outcome, predicted
from outrigger_testenv.conformance.row import Row, untried
from outrigger_testenv.conformance.scene import Scene

# Attempts to send two requests within the time that a batch is open.
_ATTEMPTS = 20
# More requests than fit in a queue.
_MANY = 16


def _served(scene: Scene, short: str, build: models.Build = models.batched) -> None:
    scene.write(short, 1, build)
    scene.add(short)


def _alone(name: str, about: str, expected: str, signature: str, inputs: Inputs) -> Row:
    """A request that no other one shares its batch with."""

    def act(scene: Scene) -> str:
        _served(scene, name)
        return scene.predict(scene.spec(name, signature), inputs)

    return Row(f"batch-{name}", about, expected, act, batching=True)


def _shared(
    name: str,
    about: str,
    expected: str,
    *requests: Inputs,
    signature: str = "",
    is_shared: Callable[[str], bool],
) -> Row:
    """Requests that are sent at the same time, until the answer to the first one shows that they
    shared a batch. That answer is returned.
    """

    def act(scene: Scene) -> str:
        _served(scene, name)
        for _ in range(_ATTEMPTS):
            spec = scene.spec(name, signature)
            calls = [scene.client.predict(spec, inputs) for inputs in requests]
            first, *_ = map(_answer, calls)
            if is_shared(first):
                break
        return first

    return Row(f"batch-{name}", about, expected, act, batching=True)


def _answer(call: grpc.Future) -> str:
    """The result of a Predict call."""
    return outcome(lambda: predicted(call.result()))


def _full(scene: Scene) -> str:
    """The different outcomes of more requests than fit in the queue, while the only thread runs
    another one.
    """
    _served(scene, "full", models.waiting)
    with scene.waiting_run("full") as end:
        spec = scene.spec("full")
        calls = [scene.client.predict(spec, {"x": [0.0] * 4}) for _ in range(_MANY)]
        scene.wait_for(lambda: any(call.done() for call in calls), "no request is refused")
        end()
    return "; ".join(sorted({finished(call) for call in calls}))


def _filtered(scene: Scene) -> str:
    _served(scene, "filtered")
    return scene.predict("filtered", {"x": [5.0]}, ("total",))


_MERGED = [
    _shared(
        "merged",
        "two requests run together, each gets its own rows",
        "rows=[4.0, 4.0] total=[22.0, 22.0] by merged 1 serving_default",
        {"x": [1.0, 1.0]},
        {"x": [10.0, 10.0]},
        is_shared=lambda answer: "total=[22.0" in answer,
    ),
    _shared(
        "padded",
        "a request is padded to the longest one with its own first element, outputs stay so wide",
        "y=[[[1.0, 2.0, 1.0], [3.0, 4.0, 1.0], [1.0, 1.0, 1.0]]] by padded 1 wide",
        {"x": [[[1.0, 2.0], [3.0, 4.0]]]},
        {"x": [[[5.0] * 3] * 3]},
        signature="wide",
        is_shared=lambda answer: "[1.0, 2.0]" not in answer,
    ),
    _shared(
        "failed",
        "the error of a request is that of all requests in its batch",
        "INVALID_ARGUMENT: *",
        {"x": [1.0]},
        {"x": [-1.0]},
        signature="positive",
        is_shared=lambda answer: answer.startswith("INVALID_ARGUMENT"),
    ),
    _alone(
        "rounded",
        "a batch is filled up to an allowed size with a first row, whose outputs are dropped",
        "rows=[4.0, 4.0] total=[13.0, 13.0] by rounded 1 serving_default",
        "",
        {"x": [3.0, 4.0]},
    ),
    Row(
        "batch-filtered",
        "a request for some of the outputs has batches of its own",
        "total=[20.0] by filtered 1 serving_default",
        _filtered,
        batching=True,
    ),
    _alone(
        "split",
        "a request larger than a batch runs in parts",
        "rows=[4.0*] total=[10.0, 10.0, 10.0, 10.0, 26.0, 26.0, 26.0, 26.0] by split 1 *",
        "",
        {"x": [float(row) for row in range(1, 9)]},
    ),
]
_REFUSED = [
    _alone(
        "too-large",
        "a request larger than the largest one",
        "INVALID_ARGUMENT: Task size 9 is larger than maximum input batch size 8",
        "",
        {"x": [1.0] * 9},
    ),
    _alone(
        "unequal",
        "inputs with different numbers of rows",
        "INVALID_ARGUMENT: Batching Run() input tensors must have equal 0th-dimension size",
        "pair",
        {"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]},
    ),
    _alone(
        "scalar",
        "an input without rows",
        "INVALID_ARGUMENT: Batching Run() input tensors must have at least one dimension",
        "scalar",
        {"x": 1.0},
    ),
    _alone(
        "no-inputs",
        "a signature without inputs",
        "INVALID_ARGUMENT: Batching Run() must have at least one input tensor",
        "none",
        {},
    ),
    _alone(
        "flat",
        "an output without rows",
        "FAILED_PRECONDITION: Batched output tensor has 0 dimensions",
        "flat",
        {"x": [1.0]},
    ),
    Row(
        "batch-full",
        "requests beyond the length of the queue",
        "OK; UNAVAILABLE: The batch scheduling queue to which this task was submitted is full*",
        _full,
        batching=True,
    ),
]
_UNTRIED = [
    untried(
        "batch-late",
        "a request that waits in the queue until its timeout",
        "RESOURCE_EXHAUSTED: Run() timeout exceeded while waiting in batching queue",
        "a caller that still waits when the deadline is over that it has sent",
    ),
    untried(
        "batch-not-padded",
        "requests of different lengths",
        "FAILED_PRECONDITION: Tensors with name '*' from different tasks have different shapes and "
        "padding is turned off.*",
        "batching parameters without pad_variable_length_inputs",
    ),
    untried(
        "batch-sizes",
        "the last allowed size is not the largest one: the model is not loaded",
        "1 END INVALID_ARGUMENT: *",
        "batching parameters with such sizes",
    ),
]
ROWS = [*_MERGED, *_REFUSED, *_UNTRIED]
