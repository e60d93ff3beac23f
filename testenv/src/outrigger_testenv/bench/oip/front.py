"""Outrigger's listener for the Open Inference Protocol, beside the engine called directly."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.generator import CLOSED_LOOP, Report, Side, run
from outrigger_testenv.bench.setup import MODEL, Setup, direct, load_arguments, processes
from outrigger_testenv.bench.spread import in_turns

GRPC, BINARY, JSON = FORMS = ("oip-grpc", "oip-binary", "oip-json")
"""The forms of messages, as `outrigger bench` calls them."""

LOAD = (*CLOSED_LOOP, "--timeout", "30s")
"""The load of these figures. JSON, and other servers, may take longer than the usual timeout."""

# Each turn has several sides.
_TURNS, _WARMUP, _MEASURED = 3, 0.5, 2.0


def throughput(form: str, setup: Setup, effort: Effort) -> Measurement:
    """Throughput through the listener in this form, divided by that of the engine called directly
    with the same tensors.
    """
    turns = _reports(setup, turns_of(effort))
    samples = [reports[form].throughput / reports["engine"].throughput for reports in turns]
    return Measurement(samples, runs=[turn[side].raw() for turn in turns for side in turn])


def turns_of(effort: Effort) -> Effort:
    """The effort of a figure with several sides in each turn."""
    return replace(
        effort,
        repeats=min(_TURNS, effort.repeats),
        warmup=min(_WARMUP, effort.warmup),
        measured=min(_MEASURED, effort.measured),
    )


def by_turns(
    sides: Mapping[str, Side], load: Sequence[str], effort: Effort, **settings: int
) -> list[dict[str, Report]]:
    """The reports of all sides under the same load, for each turn. `settings` are those of
    `generator.run`.
    """
    runs = [partial(run, side, load, effort, **settings) for side in sides.values()]
    return [dict(zip(sides, turn, strict=True)) for turn in in_turns(effort.repeats, *runs)]


@cache
def _reports(setup: Setup, effort: Effort) -> list[dict[str, Report]]:
    """One run for the figures of all forms."""
    sides = {form: _through(form, setup) for form in FORMS}
    return by_turns({"engine": direct(*setup.inference), **sides}, LOAD, effort)


def _through(form: str, setup: Setup) -> Side:
    """The listener, for the tensors of the reference model's requests."""
    stack, package = setup.inference
    arguments = ["--server", stack.serve.config["server"]["oip"], "--model", MODEL, "--form", form]
    return Side(form, [*arguments, *load_arguments(package)], processes(stack))
