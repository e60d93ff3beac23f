"""One attack, and what its measurement yields."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outrigger_testenv.attack.neighbour import Report

if TYPE_CHECKING:
    from outrigger_testenv.attack.scene import Scene
    from outrigger_testenv.stack import Stack

MIB = 1 << 20
# A refused version is refused from memory later, so each turn has hostile models of its own.
TURNS = 5


@dataclass(frozen=True)
class Turn:
    """One run of a case: its number, the time for which the neighbour is measured and its requests
    a second, and the event that is set when it has been measured.
    """

    number: int
    seconds: float
    rate: int
    over: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Waits until the neighbour has been measured."""
        self.over.wait()


# Runs one turn and returns the outcome in a few words. Raises Broken.
Act = Callable[["Scene", Turn], str]


@dataclass(frozen=True)
class Case:
    """An attack."""

    name: str
    about: str
    attack: Act
    # The load that the neighbour's latency is compared with: mostly the same bytes, sent to a
    # program that discards them. Without it the latency is not compared.
    baseline: Act | None = None
    # Prepares the turn of this number, before the neighbour is measured.
    prepare: Callable[["Scene", int], None] | None = None
    # Paths of the health listener that must answer during the attack.
    probes: Sequence[str] = ("/healthz", "/readyz")
    # The attacked stack.
    stack: Callable[["Scene"], "Stack"] = lambda scene: scene.stack
    # A caller that is measured during the attack; without one, the attack takes its own time.
    neighbour: Callable[["Scene", Turn], Report] | None = lambda scene, turn: scene.neighbour(turn)
    # The largest number of turns, for attacks that take long.
    turns: int = TURNS
    # True if any number of turns may follow, since none has something prepared for it alone.
    repeats: bool = False
    # The reason why others are not defended from this attack as far as time goes: the bounds of the
    # neighbour's latency and of the rate of answers may not hold.
    undefended: str = ""


@dataclass
class Row:
    """The measurement of a case."""

    case: Case
    peak: int = 0
    outcome: str = ""
    # The neighbour's latency over that of the baseline, and the quantile that was compared.
    ratio: float | None = None
    quantile: str = ""
    probes: int = 0
    probes_failed: int = 0
    probes_slow: int = 0
    broken: list[str] = field(default_factory=list)
    # Bounds of time that did not hold.
    late: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether every bound held."""
        return not self.broken and not self.late

    @property
    def expected(self) -> bool:
        """Whether every bound held but those that the case is not defended from."""
        return self.held or (not self.broken and bool(self.case.undefended))
