"""The figures of the Open Inference Protocol."""

from collections.abc import Callable
from functools import partial

from outrigger_testenv.bench.figure import RATIO, Effort, Figure, Target, at_least
from outrigger_testenv.bench.oip import front

# The time for starting a stack and loading a model, and for starting a run, seconds.
_STARTED, _START = 8, 0.3


def _compared(sides: int, figures: int) -> Callable[[Effort], float]:
    """The time of one of several figures that one run gives, by turns of this many sides."""

    def seconds(effort: Effort) -> float:
        turns = front.turns_of(effort)
        each = _START + turns.warmup + turns.measured
        return (_STARTED + turns.repeats * sides * each) / figures

    return seconds


def _front(name: str, form: str, about: str, target: Target | None) -> Figure:
    return Figure(
        name,
        "throughput of 1,000 x 20 tensors through the listener for the Open Inference Protocol over"
        f" that of the engine called directly with the same tensors, {about}",
        RATIO,
        partial(front.throughput, form),
        target,
        _compared(1 + len(front.FORMS), len(front.FORMS)),
    )


OIP_FIGURES = (
    _front("oip-front-ratio", front.GRPC, "gRPC", at_least(0.65)),
    _front("oip-front-ratio-binary", front.BINARY, "REST with binary tensors", at_least(0.55)),
    _front("oip-front-ratio-json", front.JSON, "REST with JSON", None),
)
