"""The table of a run, and that of several servers side by side."""

from collections import Counter
from collections.abc import Mapping, Sequence

from outrigger_testenv.conformance_oip.check import (
    DIFFERS,
    MARKS,
    NOT_OFFERED,
    NOT_TRIED,
    OK,
    Outcome,
    Seen,
)

# Longer answers are cut: as text unless they differ, and in the page.
_LONGEST, _LONGEST_IN_PAGE = 160, 90


def text(outcome: Outcome) -> str:
    """A check as text: its number and rule, and each case with the answer seen, below which is the
    expected one if it differs.
    """
    lines = [f"{outcome.verdict:11} {outcome.check.name}: {outcome.check.about}"]
    for each in outcome.seen:
        lines.append(f"    {MARKS[each.verdict]} {_head(each)}: {_shown(each)}")
        if each.verdict == DIFFERS:
            lines.append(f"      expected: {' or '.join(each.case.expected)}")
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome]) -> str:
    """The number of checks with each verdict."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    kinds = {OK: "as expected", DIFFERS: "differ", NOT_OFFERED: NOT_OFFERED, NOT_TRIED: NOT_TRIED}
    return ", ".join(f"{counts[kind]} {name}" for kind, name in kinds.items())


def markdown(servers: Mapping[str, Sequence[Outcome]]) -> str:
    """The checks with a column for each server: its mark, and the first answer that differs."""
    lines = [f"| # | check | {' | '.join(servers)} |", "|---|---|" + "---|" * len(servers)]
    for at, outcome in enumerate(next(iter(servers.values()))):
        cells = [_cell(outcomes[at]) for outcomes in servers.values()]
        lines.append(f"| {outcome.check.name} | {outcome.check.about} | {' | '.join(cells)} |")
    sums = [f"{name}: {summary(outcomes)}." for name, outcomes in servers.items()]
    return "\n".join([*lines, "", " ".join(sums), ""])


def _cell(outcome: Outcome) -> str:
    """A mark, with the first answer that is not as expected."""
    mark = MARKS[outcome.verdict]
    seen = next((each for each in outcome.seen if each.verdict == DIFFERS), None)
    return mark if seen is None else f"{mark} {_escaped(f'{_head(seen)}: {seen.text}')}"


def _head(seen: Seen) -> str:
    return f"{seen.case.form}, {seen.case.about}"


def _shown(seen: Seen) -> str:
    return seen.text if seen.verdict == DIFFERS else _cut(seen.text, _LONGEST)


def _escaped(part: str) -> str:
    plain = " ".join(part.split())
    return (
        _cut(plain, _LONGEST_IN_PAGE).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    )


def _cut(part: str, longest: int) -> str:
    return part if len(part) <= longest else f"{part[:longest]}…"
