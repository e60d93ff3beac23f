"""The table of a run, as text and as Markdown."""

from collections.abc import Sequence
from typing import Any

from outrigger_testenv.attack.case import MIB, Row

_HEADER = ["case", "attack", "peak, MiB", "neighbour", "probes", "outcome"]


def cells(row: Row) -> list[str]:
    """A row's cells as text."""
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f} ({row.quantile})"
    fine = row.probes - row.probes_slow
    probes = f"{fine} of {row.probes}" if row.probes else "-"
    outcome = row.outcome if row.held else "**not held**: " + "; ".join(row.broken)
    return [row.case.name, row.case.about, f"{row.peak // MIB}", ratio, probes, outcome]


def markdown(rows: Sequence[Row], circumstances: Sequence[str]) -> str:
    """The whole table with the circumstances of the run above it."""
    held, peak = sum(row.held for row in rows), max(row.peak for row in rows) // MIB
    lines = [
        *circumstances,
        f"{held} of {len(rows)} cases hold; the peak of all is {peak} MiB.",
        "",
        _line(_HEADER),
        _line(["---"] * len(_HEADER)),
        *(_line(["`" + first + "`", *rest]) for first, *rest in map(cells, rows)),
    ]
    return "\n".join(lines) + "\n"


def _line(parts: Sequence[Any]) -> str:
    return (
        "| " + " | ".join(str(part).replace("|", "\\|").replace("\n", " ") for part in parts) + " |"
    )
