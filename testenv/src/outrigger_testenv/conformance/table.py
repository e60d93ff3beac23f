"""The table of a run."""

from collections import Counter
from collections.abc import Sequence

from outrigger_testenv.conformance.row import DIFFERS, NOT_TRIED, OK, Outcome

# Longer messages are cut in the table, unless they differ.
_LONGEST = 160


def text(outcome: Outcome) -> str:
    """A row as text: name and behaviour, and the expected answer above the one seen."""
    shown = _cut if outcome.verdict != DIFFERS else str
    head = f"{outcome.verdict:9}  {outcome.row.name}: {outcome.row.about}"
    return (
        f"{head}\n           expected  {shown(outcome.row.expected)}\n"
        f"           seen      {shown(outcome.seen)}"
    )


def summary(outcomes: Sequence[Outcome]) -> str:
    """The number of rows with each verdict."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    return f"{counts[OK]} as expected, {counts[DIFFERS]} differ, {counts[NOT_TRIED]} not tried"


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The whole table, for holding two engines side by side."""
    lines = ["| row | behaviour | expected | seen | |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        row = outcome.row
        parts = [f"`{row.name}`", row.about, row.expected, outcome.seen, outcome.verdict]
        lines.append("| " + " | ".join(_cell(part) for part in parts) + " |")
    return "\n".join([*lines, "", f"{summary(outcomes)}.", ""])


def _cut(part: str) -> str:
    return part if len(part) <= _LONGEST else f"{part[:_LONGEST]}…"


def _cell(part: str) -> str:
    return part.replace("|", "\\|").replace("\n", " ")
