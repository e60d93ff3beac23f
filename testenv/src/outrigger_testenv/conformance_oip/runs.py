"""Runs of the checks."""

from collections.abc import Callable, Sequence

from outrigger_testenv.conformance_oip import checks
from outrigger_testenv.conformance_oip.check import Check, Outcome, run
from outrigger_testenv.conformance_oip.server import FP32, Server


def checks_of(names: str) -> list[Check]:
    """The checks of a list such as `S17,S20`; all, if it is empty."""
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    return [check for check in checks.ALL if not wanted or check.name in wanted]


def tried(
    chosen: Sequence[Check], server: Server, show: Callable[[Outcome], None]
) -> list[Outcome]:
    """Tries checks, those at the end that may leave the server unusable, and returns them in the
    order of their numbers. `show` gets each as soon as it is tried. Raises OSError or RuntimeError
    if the server does not have the models.
    """
    if not server.has_model(FP32):
        raise RuntimeError(f"it does not serve the model {FP32}")
    outcomes = []
    try:
        for check in sorted(chosen, key=lambda each: (each.last, each.number)):
            outcomes.append(run(check, server))
            show(outcomes[-1])
    finally:
        server.close()
    return sorted(outcomes, key=lambda each: each.check.number)
