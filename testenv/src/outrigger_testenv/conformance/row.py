"""A row of the table: a behaviour of the engine, and the answer that shows it."""

from collections.abc import Callable
from dataclasses import dataclass

from outrigger_testenv.conformance.pattern import matches
from outrigger_testenv.conformance.scene import Scene

OK, DIFFERS, NOT_TRIED = "ok", "DIFFERS", "not tried"
# The needs of rows that have an act.
BATCHING = "--enable_batching with the parameters of conformance/batching.config"
NO_BATCHING = "a start without --enable_batching"


@dataclass(frozen=True)
class Row:
    """A behaviour: its name, a sentence, the expected answer with * for any text, and the act that
    returns the answer seen. A behaviour without an act needs other flags or another start. One of
    `batching` is tried if the engine batches requests, all others if it does not.
    """

    name: str
    about: str
    expected: str
    act: Callable[[Scene], str] | None = None
    needs: str = ""
    batching: bool = False


@dataclass(frozen=True)
class Outcome:
    """A row with the answer seen, or with what it needs to be tried."""

    row: Row
    seen: str
    is_tried: bool = True

    @property
    def verdict(self) -> str:
        """One of `OK`, `DIFFERS` and `NOT_TRIED`."""
        if not self.is_tried:
            return NOT_TRIED
        return OK if matches(self.row.expected, self.seen) else DIFFERS


def untried(name: str, about: str, expected: str, needs: str) -> Row:
    """A row that this suite does not try, since it needs another flag or start."""
    return Row(name, about, expected, needs=needs)


def run(row: Row, scene: Scene) -> Outcome:
    """Tries a row, and removes its models. An exception is an answer that differs."""
    if row.act is None or row.batching != scene.batches:
        needs = row.needs or (BATCHING if row.batching else NO_BATCHING)
        return Outcome(row, f"not tried: needs {needs}", is_tried=False)
    try:
        seen = row.act(scene)
        scene.reset()
    except Exception as error:
        seen = f"{type(error).__name__}: {error}"
    return Outcome(row, scene.plain(seen))
