"""Two engines behind one control plane: what the models of one notice while the other hangs or is
down.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.generator import Report, rate, run
from outrigger_testenv.bench.path import LATENCY
from outrigger_testenv.bench.setup import COLUMNAR, MODEL, THREADS, Setup, new_stack, through
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.binary import outrigger
from outrigger_testenv.stack import Engine, Stack

_OTHER = "other"
# The load on the model of the other engine, which goes on during the outage: requests a second, and
# the number of treatments in each.
_BESIDE, _SMALL = 50, 10


def hanging(setup: Setup, effort: Effort) -> Measurement:
    """The 99th percentile while the other engine hangs, divided by that while both answer."""
    return _compared(setup, effort, _hangs)


def down(setup: Setup, effort: Effort) -> Measurement:
    """The 99th percentile while the other engine is down, divided by that while both answer."""
    return _compared(setup, effort, _is_down)


def _compared(
    setup: Setup,
    effort: Effort,
    outage: Callable[[Stack, Engine], Iterator[None]],
) -> Measurement:
    with _two_engines(setup) as (stack, other), _load_beside(setup, stack):
        side, load = through(stack, setup.package, COLUMNAR), rate(LATENCY)

        def both() -> Report:
            return run(side, load, effort)

        def one() -> Report:
            with contextmanager(outage)(stack, other):
                return run(side, load, effort)

        # A run in which a request fails raises.
        turns = in_turns(effort.repeats, both, one)
    samples = [during.p99 / usual.p99 for usual, during in turns]
    conditions = {"requests_per_second": LATENCY, "beside": _BESIDE}
    return Measurement(samples, conditions, [report.raw() for turn in turns for report in turn])


@contextmanager
def _two_engines(setup: Setup) -> Iterator[tuple[Stack, Engine]]:
    """A control plane with the model in one engine, and the same model in another one."""
    with new_stack() as stack:
        other = Engine(stack.directory / _OTHER, stack.logs / "other.log", THREADS)
        config = stack.serve.config
        del config["engine"]
        config["engines"] = {
            "default": {"kind": "tfserving", "endpoint": stack.engine.endpoint},
            _OTHER: {"kind": "tfserving", "endpoint": other.endpoint},
        }
        config["models"] = [
            {"name": MODEL, "engine": "default"},
            {"name": _OTHER, "engine": _OTHER},
        ]
        try:
            other.start()
            stack.start()
            for model in (MODEL, _OTHER):
                digest = stack.push(setup.package, model)
                client = stack.client()
                client.load(model)
                client.wait_until_serving(model, digest)
            yield stack, other
        finally:
            other.process.kill()


@contextmanager
def _load_beside(setup: Setup, stack: Stack) -> Iterator[None]:
    """Sends requests for the model of the other engine. They fail during the outage."""
    command = [str(outrigger()), "bench", "--server", stack.serve.target, "--model", _OTHER]
    command += ["--package", str(setup.package.directory), "--treatments", str(_SMALL)]
    command += [*rate(_BESIDE), "--timeout", "1s", "--duration", "1h", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as generator:
        try:
            yield
        finally:
            generator.kill()


def _hangs(stack: Stack, other: Engine) -> Iterator[None]:
    other.process.pause()
    try:
        _wait(stack, answers=False)
        yield
    finally:
        other.process.resume()
    _wait(stack, answers=True)


def _is_down(stack: Stack, other: Engine) -> Iterator[None]:
    other.process.kill()
    _wait(stack, answers=False)
    yield
    other.start()
    _wait(stack, answers=True)


def _wait(stack: Stack, answers: bool) -> None:
    """Waits until the control plane knows whether the other engine answers."""
    reachable = f'outrigger_engine_reachable{{engine="{_OTHER}"}}'
    stack.serve.process.wait_until(lambda: stack.serve.metrics()[reachable] == float(answers))
