"""Attackers that ask for models: known ones, unknown ones and many tags."""

from collections.abc import Sequence

from outrigger_testenv.attack import frames
from outrigger_testenv.attack.messages import EXPLAIN, model
from outrigger_testenv.attack.wire import Calls, paced

# Answers of failed calls are small and are read; the deadline is longer than any case.
_DEADLINE = "60S"


def ask(address: str, names: Sequence[str], seconds: float, rate: float = 4.0) -> None:
    """Asks for the models in turn, at a rate."""
    calls = Calls(address)
    for step in paced(rate, seconds):
        calls.call(EXPLAIN, frames.message(model(names[step % len(names)])), _DEADLINE)
        calls.receive(0)


def ask_unknown(address: str, prefix: str, seconds: float, rate: float = 12.0) -> None:
    """Asks for another model each time, none of which exists."""
    calls = Calls(address)
    for step in paced(rate, seconds):
        calls.call(EXPLAIN, frames.message(model(f"{prefix}/{step}")), _DEADLINE)
        calls.receive(0)


def ask_tags(address: str, name: str, tags: int, seconds: float, rate: float = 400.0) -> None:
    """Asks for each of the tags t0, t1 and so on of a model once."""
    calls = Calls(address)
    for step in paced(rate, seconds):
        if step < tags:
            calls.call(EXPLAIN, frames.message(model(name, f"t{step}")), _DEADLINE)
        calls.receive(0)
