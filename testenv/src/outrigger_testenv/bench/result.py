"""The result of a figure, as text and as JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from outrigger_testenv.bench.figure import Figure, Measurement
from outrigger_testenv.bench.spread import Spread


@dataclass(frozen=True)
class Result:
    """A figure with its measurement."""

    figure: Figure
    measurement: Measurement
    # The duration of the measurement.
    seconds: float

    @cached_property
    def spread(self) -> Spread:
        """The spread of the samples."""
        return Spread.of(self.measurement.samples)

    @property
    def value(self) -> float:
        """The median of the samples."""
        return self.spread.median

    @property
    def met(self) -> bool:
        """Whether the value reaches its target; true without a target."""
        return self.figure.target is None or self.figure.target.met_by(self.value)

    @property
    def verdict(self) -> str:
        """The target, and "met" or "missed"."""
        if self.figure.target is None:
            return "no target"
        return f"target {self.figure.target}: {'met' if self.met else 'missed'}"

    def comment(self) -> str:
        """A comment with the figure's description and spread."""
        low, high = self.spread.lower_quartile, self.spread.upper_quartile
        repeats = len(self.measurement.samples)
        within = f"half of {repeats} turns within {shown(low)} to {shown(high)}"
        return f"# {self.figure.name}: {self.figure.about}" + (f"; {within}" if repeats > 1 else "")

    def line(self) -> str:
        """The line `bench <name> <value> <unit>`."""
        return f"bench {self.figure.name} {shown(self.value)} {self.figure.unit}"

    def write(self, file: Path, circumstances: Mapping[str, Any]) -> None:
        """Writes the result with all samples and circumstances as JSON."""
        target = self.figure.target
        content = {
            "name": self.figure.name,
            "about": self.figure.about,
            "value": self.value,
            "unit": self.figure.unit,
            "target": None if target is None else str(target),
            "met": self.met,
            "spread": asdict(self.spread),
            "repeats": len(self.measurement.samples),
            "samples": list(self.measurement.samples),
            "conditions": dict(self.measurement.conditions),
            "seconds": round(self.seconds, 1),
            **circumstances,
            "runs": list(self.measurement.runs),
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content, indent=2) + "\n")


def shown(value: float) -> str:
    """Formats a value with three significant digits, but all digits before the point."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, decimals)}f}"
