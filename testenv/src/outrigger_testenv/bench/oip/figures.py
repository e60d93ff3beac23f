"""The figures of the Open Inference Protocol."""

from collections.abc import Callable
from functools import partial

from outrigger_testenv.bench.figure import RATIO, Effort, Figure, Target, at_least, at_most
from outrigger_testenv.bench.oip import batcher, front, identity, remote

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


def _identity(peer: str) -> tuple[Figure, Figure]:
    about = (
        "of a model that returns its 80 KB input, 16 requests in flight over gRPC, on Outrigger"
        f" with ONNX Runtime over that of {peer} with a model in Python"
    )
    seconds = _compared(1 + len(identity.PEERS), 2 * len(identity.PEERS))
    name = f"oip-identity-{peer.lower()}"
    return (
        Figure(
            name,
            f"throughput {about}",
            RATIO,
            partial(identity.throughput, peer),
            at_least(1),
            seconds,
        ),
        Figure(
            f"{name}-cpu",
            f"CPU a request of all processes {about}",
            RATIO,
            partial(identity.cpu, peer),
            at_most(1),
            seconds,
        ),
    )


OIP_FIGURES = (
    _front("oip-front-ratio", front.GRPC, "gRPC", at_least(0.65)),
    _front("oip-front-ratio-binary", front.BINARY, "REST with binary tensors", at_least(0.55)),
    _front("oip-front-ratio-json", front.JSON, "REST with JSON", None),
    *(figure for peer in identity.PEERS for figure in _identity(peer)),
    Figure(
        "remote-ratio",
        "throughput of 1,000 x 20 columnar requests through an engine of the kind oip to Triton"
        " over that of Triton called directly with the same tensors",
        RATIO,
        remote.throughput,
        at_least(0.8),
        _compared(2, 1),
    ),
    Figure(
        "batcher-gain",
        "throughput of ONNX Runtime with the batcher over that without: four dense layers of 2,048,"
        " 64 requests of one row in flight",
        RATIO,
        batcher.gain,
        at_least(4),
        _compared(2, 1),
    ),
)
