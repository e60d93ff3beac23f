"""What a figure is: a name, a target, and a way to measure it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrigger_testenv.bench.setup import Setup


class Failed(RuntimeError):
    """A figure could not be measured, and why."""


class Skipped(RuntimeError):
    """A figure takes something that this machine does not have, and what."""


@dataclass(frozen=True)
class Target:
    """What a figure should reach."""

    relation: str
    bound: float

    def met_by(self, value: float) -> bool:
        """Whether a value reaches it; the bound itself does."""
        return value >= self.bound if self.relation == ">=" else value <= self.bound

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g}"


def at_least(bound: float) -> Target:
    """More is better."""
    return Target(">=", bound)


def at_most(bound: float) -> Target:
    """Less is better."""
    return Target("<=", bound)


@dataclass(frozen=True)
class Effort:
    """How much is measured; durations in seconds."""

    repeats: int
    # Sent, but not counted, at the beginning of each run.
    warmup: float
    # Counted in each run.
    measured: float
    # For this long must a rate be held.
    held: float


# Long enough for 32 requests beyond the 99th percentile at the lowest rate used.
FULL = Effort(repeats=5, warmup=1, measured=4, held=60)
QUICK = Effort(repeats=3, warmup=0.5, measured=1, held=5)


@dataclass(frozen=True)
class Measurement:
    """What measuring gave."""

    # A value a repeat, in the order in which they were measured.
    samples: Sequence[float]
    # What was set, and is not seen in the runs.
    conditions: Mapping[str, Any] = field(default_factory=dict)
    # What the samples were computed from.
    runs: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Figure:
    """One line of the output. Its value is the median of the samples."""

    name: str
    about: str
    unit: str
    # Raises Failed, and Skipped.
    measure: "Callable[[Setup, Effort], Measurement]"
    # None: told, but nothing to hold it against.
    target: Target | None
    # How long `measure` takes, for the plan.
    seconds: Callable[[Effort], float]

    def file(self, directory: Path) -> Path:
        """Where all there is to say of it is written."""
        return directory / f"{self.name}.json"
