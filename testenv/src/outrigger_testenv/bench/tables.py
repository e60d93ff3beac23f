"""`make bench TABLES=1`: the tables of docs/performance.md, one for each form, and their plot.

Each cell is a closed loop of one client, with a number of treatments in each request and a number
of requests in flight: the treatments vary while few are in flight, and the requests in flight vary
with the usual treatments. The clients of a cell run by turns, and a value is their median.
Every run must get the scores of the model. The values go to tables.json; the page, its plot and
the headline of README.md are rewritten unless --quick is set, whose values are no measurement.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from outrigger_testenv.bench.clients import (
    BENCH,
    CORE,
    GO,
    GO_HTTP,
    ONE,
    Call,
    Client,
    Served,
    needs_go,
    run,
    served,
)
from outrigger_testenv.bench.figure import FULL, QUICK, Effort, Failed, Skipped
from outrigger_testenv.bench.generator import CONTROL_PLANE, Report
from outrigger_testenv.bench.machine import commit, load_average, machine
from outrigger_testenv.bench.plot import Line, Panel, svg
from outrigger_testenv.bench.setup import (
    COLUMNAR,
    JSON,
    KEY_VALUE,
    TENSORFLOW,
    Setup,
    new_stack,
)
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.binary import repository
from outrigger_testenv.marks import insert

TITLES = {
    COLUMNAR: "gRPC, columnar",
    KEY_VALUE: "gRPC, key-value",
    JSON: "JSON over HTTP/1.1",
}
_GRPC = (GO, CORE, BENCH, ONE)
CLIENTS: dict[str, tuple[Client, ...]] = {
    COLUMNAR: _GRPC,
    KEY_VALUE: _GRPC,
    JSON: (GO_HTTP, BENCH),
}
TREATMENTS = (1, 100, 1000, 5000)
# The connections over which so many requests are in flight; HTTP/1.1 has one for each request.
CONNECTIONS = {16: 2, 512: 64, 4096: 64}
# The limit that the chart sets in a pod with its default resources.
MEMORY = "896MiB"
_TIMEOUT = 10.0
# The treatments while the requests in flight vary, and the reverse; those of the headline are both.
USUAL, LEAST = 1000, min(CONNECTIONS)
# Treatments and requests in flight: a table's columns.
POINTS = (
    *((treatments, LEAST) for treatments in TREATMENTS),
    *((USUAL, load) for load in CONNECTIONS if load != LEAST),
)
PAGE, README, PLOT = "docs/performance.md", "README.md", "docs/performance.svg"


@dataclass(frozen=True)
class Cell:
    """The values of one client; medians of the turns."""

    form: str
    client: str
    treatments: int
    in_flight: int
    # Answers a second.
    throughput: float
    # CPU of the control plane for a request, microseconds; `None` if none ended in time.
    cpu_us: float | None
    # Milliseconds; `None` without answers.
    p99_ms: float | None
    # The part of the requests that failed.
    failed: float

    @classmethod
    def of(cls, client: str, call: Call, reports: Sequence[Report]) -> "Cell":
        """The medians of several runs."""
        p99 = [report.p99 for report in reports if report.json["latency_ms"]]
        spent = [report.json["cpu_seconds_per_request"][CONTROL_PLANE] for report in reports]
        cpu = [seconds * 1e6 for seconds in spent if seconds is not None]
        failed = [each.failed / max(each.failed + each.json["ok"], 1) for each in reports]
        return cls(
            call.form,
            client,
            call.treatments,
            call.in_flight,
            median(report.throughput for report in reports),
            median(cpu) if cpu else None,
            median(p99) if p99 else None,
            median(failed),
        )

    def __str__(self) -> str:
        parts = [f"{self.throughput:,.0f}/s"]
        parts += [] if self.cpu_us is None else [f"{self.cpu_us:,.0f} us"]
        parts += [f"{self.failed:.0%} failed"] if self.failed >= 0.005 else []
        return ", ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if every cell was measured; a client that this machine lacks is left out."""
    parser = argparse.ArgumentParser(prog="make bench TABLES=1", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="directory of tables.json")
    parser.add_argument("--quick", action="store_true", help="shorter, for trying it out")
    parser.add_argument("--only", choices=TITLES, help="this form; the docs stay as they are")
    parser.add_argument(
        "--render", type=Path, metavar="FILE", help="write the page from an earlier tables.json"
    )
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    if options.render:
        content = json.loads(options.render.read_text())
    else:
        forms = [options.only] if options.only else list(TITLES)
        content = measured(forms, QUICK if options.quick else FULL)
        write(options.output / "tables.json", json.dumps(content, indent=2) + "\n")
    text, plot = page(content), plotted(content["cells"])
    write(options.output / "tables.md", text)
    write(options.output / "tables.svg", plot)
    print(text)
    if not options.quick and not options.only:
        write(repository() / PLOT, plot)
        insert(repository() / PAGE, "tables", text)
        insert(repository() / README, "headline", headline(content["cells"]))
    return 0


def measured(forms: Sequence[str], effort: Effort) -> dict[str, Any]:
    """Measures all cells of some forms; the content of tables.json."""
    os.environ.update(TENSORFLOW)
    before, cells = load_average(), []
    with Setup({}) as setup, new_stack({"server": {"memory": MEMORY}}) as stack:
        setup.serve_model(stack)
        target = served(setup, stack)
        for form in forms:
            for treatments, in_flight in POINTS:
                connections = CONNECTIONS[in_flight]
                call = Call(form, treatments, connections, in_flight, timeout=_TIMEOUT)
                cells += measure(target, call, effort)
    return {
        "commit": commit(),
        "machine": {**machine(), "load_average_before": before},
        "turns": turns_of(effort),
        "seconds": effort.measured,
        "cells": [asdict(cell) for cell in cells],
    }


def measure(target: Served, call: Call, effort: Effort) -> list[Cell]:
    """The cells of all clients, by turns. Raises Failed if a run could not begin."""
    clients = [client for client in CLIENTS[call.form] if available(client)]
    sides = [
        lambda client=client: run(client, target, call, effort, may_fail=True) for client in clients
    ]
    turns = in_turns(turns_of(effort), *sides)
    cells = [
        Cell.of(client.name, call, reports)
        for client, reports in zip(clients, zip(*turns, strict=True), strict=True)
    ]
    for cell in cells:
        print(f"{cell.client}, {call}: {cell}", file=sys.stderr, flush=True)
    return cells


def turns_of(effort: Effort) -> int:
    """The turns of each cell: there are many cells, and neighbours show what is noise."""
    return min(3, effort.repeats) if effort != QUICK else 1


def available(client: Client) -> bool:
    """Whether this machine has what the client needs."""
    if client not in (GO, GO_HTTP):
        return True
    try:
        needs_go()
    except Skipped as missing:
        print(f"{client.name} is left out: {missing}", file=sys.stderr)
        return False
    return True


def page(content: Mapping[str, Any]) -> str:
    """The text of the page: how it was measured, the plot, and a table for each form."""
    about, cells = content["machine"], [Cell(**cell) for cell in content["cells"]]
    number = content["commit"]["id"] or "unknown"
    state = " with changes" if content["commit"]["modified"] else ""
    lines = [
        f"Measured at commit `{number[:12]}`{state} on {about['cores']} cores"
        f" ({about['cpu']}), with `server.memory` {MEMORY}; medians of"
        f" {content['turns']} turns of {content['seconds']:g} s. Each value is answers a"
        " second, and the control plane's CPU for a request, refused ones included.",
        "",
        f"![Answers a second by client, treatments and requests in flight]({Path(PLOT).name})",
    ]
    for form, title in TITLES.items():
        of_form = [cell for cell in cells if cell.form == form]
        if of_form:
            lines += ["", f"### {title}", "", *table(of_form)]
    return "\n".join(lines) + "\n"


def table(cells: Sequence[Cell]) -> list[str]:
    """The rows of a form: a row for each client, and a column for each point."""
    points = _in_order((cell.treatments, cell.in_flight) for cell in cells)
    by = {(cell.client, cell.treatments, cell.in_flight): cell for cell in cells}
    web = any(cell.form == JSON for cell in cells)
    heads = [
        f"{treatments:,} treatment{'s' * (treatments > 1)}, {load:,} in flight,"
        f" {load if web else CONNECTIONS[load]:,} connections"
        for treatments, load in points
    ]
    rows = [f"| client | {' | '.join(heads)} |", "|---|" + "---|" * len(points)]
    for client in _in_order(cell.client for cell in cells):
        values = [str(by.get((client, *point), "")) for point in points]
        rows.append(f"| {client} | {' | '.join(values)} |")
    return rows


def plotted(cells: Iterable[Mapping[str, Any]]) -> str:
    """The plot: by treatments above, by requests in flight below, a panel for each form."""
    cells = [Cell(**cell) for cell in cells]
    forms = _in_order(cell.form for cell in cells)
    above = [
        _panel(f"{TITLES[form]}, {LEAST} in flight", "treatments", cells, form, LEAST)
        for form in forms
    ]
    below = [
        _panel(f"{TITLES[form]}, {USUAL:,} treatments", "in flight", cells, form, None)
        for form in forms
    ]
    return svg([above, below])


def _panel(title: str, axis: str, cells: Sequence[Cell], form: str, in_flight: int | None) -> Panel:
    """A panel by treatments for a load or, without one, by loads for the usual treatments."""
    chosen = [
        cell
        for cell in cells
        if cell.form == form
        and (cell.in_flight == in_flight if in_flight else cell.treatments == USUAL)
    ]
    lines = []
    for client in _in_order(cell.client for cell in chosen):
        points = [
            (cell.treatments if in_flight else cell.in_flight, cell.throughput)
            for cell in chosen
            if cell.client == client
        ]
        lines.append(Line(client, tuple(sorted(points))))
    return Panel(title, axis, "answers a second", tuple(lines))


def headline(cells: Iterable[Mapping[str, Any]]) -> str:
    """The sentence of README.md. Raises Failed without grpc-go."""
    for each in cells:
        cell = Cell(**each)
        usual = cell.treatments == USUAL and cell.in_flight == LEAST
        if usual and cell.form == COLUMNAR and cell.client == GO.name:
            return (
                f"On two cores it answers {round(cell.throughput, -2):,.0f} requests a second of a"
                f" thousand treatments each with a 99th percentile of {cell.p99_ms:.1f} ms, with"
                f" grpc-go as the client, {LEAST} requests in flight.\n"
            )
    raise Failed(f"no cell of {GO.name} with {USUAL} treatments")


def write(file: Path, text: str) -> None:
    """Writes a file."""
    file.write_text(text)


def _in_order(values: Iterable[Any]) -> list[Any]:
    """Different values, in the order in which they come first."""
    return list(dict.fromkeys(values))


if __name__ == "__main__":
    sys.exit(main())
