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
    faults = "; ".join([*row.broken, *row.late])
    outcome = row.outcome
    if not row.expected:
        outcome = f"**not held**: {faults}"
    elif not row.held:
        outcome = f"**not defended**: {faults}; {row.case.undefended}"
    return [row.case.name, row.case.about, f"{row.peak // MIB}", ratio, probes, outcome]


def summary(rows: Sequence[Row]) -> str:
    """The numbers of cases that hold, that are not defended, and that do not hold."""
    held, expected = sum(row.held for row in rows), sum(row.expected for row in rows)
    return (
        f"{held} of {len(rows)} cases hold, {expected - held} are not defended, "
        f"{len(rows) - expected} do not hold"
    )


def markdown(rows: Sequence[Row], circumstances: Sequence[str]) -> str:
    """The whole table with the circumstances of the run above it."""
    lines = [
        *circumstances,
        f"{summary(rows)}; the peak of all is {max(row.peak for row in rows) // MIB} MiB.",
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
