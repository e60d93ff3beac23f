"""The definition of a figure: a name, a target, and a way to measure it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrigger_testenv.bench.programs import Program
    from outrigger_testenv.bench.setup import Setup

# Units.
RATIO, RATE, MILLISECONDS, CORES, ALLOCATIONS = "x", "/s", "ms", "cores", "allocations"
PERCENT, REQUESTS, REGRESSIONS, KILOBYTES, MEGABYTES = "%", "requests", "regressions", "kB", "MB"
ROWS = "rows"
NANOSECONDS, MICROSECONDS, SECONDS, MEBIBYTES = "ns", "us", "s", "MiB"


class Failed(RuntimeError):
    """A figure could not be measured; the message says why."""


class Skipped(RuntimeError):
    """A figure needs something that this machine does not have; the message names it."""


@dataclass(frozen=True)
class Target:
    """The target of a figure."""

    relation: str
    bound: float

    def met_by(self, value: float) -> bool:
        """Whether a value reaches the target; the bound itself does."""
        return value >= self.bound if self.relation == ">=" else value <= self.bound

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g}"


def at_least(bound: float) -> Target:
    """A lower bound."""
    return Target(">=", bound)


def at_most(bound: float) -> Target:
    """An upper bound."""
    return Target("<=", bound)


@dataclass(frozen=True)
class Effort:
    """The number and length of measurements; durations in seconds."""

    repeats: int
    # The time at the beginning of each run in which requests are sent but not counted.
    warmup: float
    # The measured time of each run.
    measured: float
    # The time for which a rate must be held.
    held: float


# Long enough for 32 requests beyond the 99th percentile at the lowest rate used.
FULL = Effort(repeats=5, warmup=1, measured=4, held=60)
QUICK = Effort(repeats=3, warmup=0.5, measured=1, held=5)


@dataclass(frozen=True)
class Measurement:
    """The result of measuring a figure."""

    # One value for each repeat, in the order of measurement.
    samples: Sequence[float]
    # Settings that the runs do not show.
    conditions: Mapping[str, Any] = field(default_factory=dict)
    # The raw results from which the samples were computed.
    runs: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Figure:
    """One line of the output. Its value is the median of the samples."""

    name: str
    about: str
    unit: str
    # The function that measures it. It raises Failed or Skipped.
    measure: "Callable[[Setup, Effort], Measurement]"
    # `None` for a figure that is reported without a target.
    target: Target | None
    # The expected duration of `measure`, for the plan.
    seconds: Callable[[Effort], float]
    # The programs that it runs, which are built beforehand.
    programs: Sequence["Program"] = ()

    def file(self, directory: Path) -> Path:
        """The file with the figure's result and samples."""
        return directory / f"{self.name}.json"
