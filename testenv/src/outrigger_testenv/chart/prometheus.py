"""Rules and queries: checked with promtool, and against what the binary says it exposes."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outrigger_testenv.binary import outrigger
from outrigger_testenv.chart.render import Rendered

# Given by Prometheus to every target of a monitor, or to histograms.
TARGET_LABELS = {"namespace", "job", "pod", "le"}
_SELECTOR = re.compile(r"\b((?:outrigger|process)_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")


@dataclass(frozen=True)
class Selector:
    """A metric in a query, with its matchers: label, operator, value."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]

    @property
    def family(self) -> str:
        """The metric as it is declared: without a histogram's endings."""
        return re.sub(r"_(bucket|sum|count)$", "", self.metric)


def selectors(query: str) -> list[Selector]:
    """All metrics of ours in a query."""
    return [
        Selector(hit[1], tuple(_MATCHER.findall(hit[2] or ""))) for hit in _SELECTOR.finditer(query)
    ]


def groupings(query: str) -> set[str]:
    """The labels that a query groups by or matches on."""
    found = (label for hit in _GROUPING.finditer(query) for label in hit[1].split(","))
    return {each.strip() for each in found}


def exposed() -> dict[str, set[str]]:
    """Every metric that the binary can expose, with its labels."""
    printed = subprocess.run(
        [outrigger(), "serve", "--print-reference", "metrics"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| ([^|]*) \|", printed.stdout, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def families(scrape: str) -> dict[str, list[Mapping[str, str]]]:
    """The samples of a scrape: their labels, by the metric's name."""
    found: dict[str, list[Mapping[str, str]]] = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", scrape, re.MULTILINE):
        pairs = {label: value for label, _, value in _MATCHER.findall(labels)}
        found.setdefault(re.sub(r"_(bucket|sum|count)$", "", name), []).append(pairs)
    return found


def alerts(rendered: Rendered) -> Iterator[dict[str, Any]]:
    """The alerts of a PrometheusRule."""
    for group in rendered.one("PrometheusRule")["spec"]["groups"]:
        yield from group["rules"]


def dashboard(rendered: Rendered) -> dict[str, Any]:
    """The Grafana dashboard in its ConfigMap."""
    name = f"{rendered.workload['metadata']['name']}-dashboard"
    return json.loads(rendered.one("ConfigMap", name)["data"]["outrigger.json"])


def dashboard_queries(board: Mapping[str, Any]) -> Iterator[str]:
    """Its queries, annotations included, with values in the place of Grafana's variables."""
    annotations = (each["expr"] for each in board["annotations"]["list"])
    targets = (target["expr"] for panel in board["panels"] for target in panel.get("targets", ()))
    for query in (*annotations, *targets):
        known = query.replace("$__rate_interval", "5m")
        yield re.sub(r"\$(namespace|job|pod|model)\b", r"some-\1", known)


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """promtool, to its end."""
    command = [str(shutil.which("promtool")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write_as_recordings(queries: Iterator[str], file: Path) -> None:
    """Wraps queries as recording rules, the only form in which promtool checks them."""
    rules = [{"record": f"query:{at}", "expr": query} for at, query in enumerate(queries)]
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
