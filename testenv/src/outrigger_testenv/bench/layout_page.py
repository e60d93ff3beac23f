"""The table and the plot of docs/model-forms.md, from the results of the figures."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from outrigger_testenv.bench.layout_figures import NAMES, TREATMENTS
from outrigger_testenv.bench.plot import Line, Panel, svg
from outrigger_testenv.binary import repository
from outrigger_testenv.marks import insert

PAGE, PLOT = "docs/model-forms.md", "docs/model-forms.svg"
TITLES = {
    "per-feature": "a tensor for each feature",
    "example": "tf.Example",
    "packed": "packed",
}
_VALUES = {
    "cpu_us": "CPU of the engine, us",
    "p50_us": "median, us",
    "p99_us": "99th percentile, us",
    "bytes": "bytes",
}

Result = Mapping[str, Any]


def write(directory: Path) -> None:
    """Writes the page from the results in a directory. Raises FileNotFoundError if a layout is not
    measured.
    """
    results = [json.loads((directory / f"layout-{name}.json").read_text()) for name in NAMES]
    insert(repository() / PAGE, "layouts", text(results))
    (repository() / PLOT).write_text(plot(results))


def text(results: Sequence[Result]) -> str:
    """The circumstances and the table."""
    first = results[0]
    about, number = first["machine"], first["commit"]["id"] or "unknown"
    lines = [
        f"Measured at commit `{number[:12]}` on {about['cores']} cores ({about['cpu']}); medians "
        f"of {first['repeats']} turns of {first['runs'][0]['seconds']:g} s.",
        "",
        f"| treatments | form | {' | '.join(_VALUES.values())} |",
        "|---|---|" + "---|" * len(_VALUES),
    ]
    for treatments in TREATMENTS:
        for name, result in zip(NAMES, results, strict=True):
            values = [f"{value(result, treatments, key):,.0f}" for key in _VALUES]
            lines.append(f"| {treatments:,} | {TITLES[name]} | {' | '.join(values)} |")
    lines += ["", f"![Cost of a request by form and treatments]({Path(PLOT).name})"]
    return "\n".join(lines) + "\n"


def plot(results: Sequence[Result]) -> str:
    """A panel for each value, with a line for each layout."""
    panels = [
        Panel(
            title,
            "treatments",
            "",
            tuple(
                Line(
                    TITLES[name],
                    tuple((each, value(result, each, key)) for each in TREATMENTS),
                )
                for name, result in zip(NAMES, results, strict=True)
            ),
        )
        for key, title in _VALUES.items()
    ]
    return svg([panels[:2], panels[2:]])


def value(result: Result, treatments: int, key: str) -> float:
    """The median of a layout's runs with so many treatments."""
    return median(run[key] for run in result["runs"] if run["treatments"] == treatments)
