"""Checks of rules and queries with promtool, and against the metrics that the binary declares and
exposes.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.chart.render import CHART, Rendered

# Rules and dashboards, as they are committed.
MONITORING = CHART / "monitoring"
BATCH_BOARD = "outrigger-batch.json"

# Labels that Prometheus adds to every target of a monitor, or to histograms.
TARGET_LABELS = {"namespace", "job", "pod", "le"}

PREDICTION = "a prediction"
IN_ENGINE = "a model in the engine"
TRIAL = "a canary on trial"
PROFILE = "a canary on trial whose model has a profile.json"
TLS = "TLS"
TRACES = "a collector of traces"
BATCHER = "an engine with the key batcher"
ROWS = "a prediction on the listener of XGBoost Serving's interface"
# Metrics that a server exposes only later, by the event they need: their series depend on models,
# or on parts that the configuration leaves off.
LATER = {
    "outrigger_requests_total": PREDICTION,
    "outrigger_request_duration_seconds": PREDICTION,
    "outrigger_request_stage_duration_seconds": PREDICTION,
    "outrigger_request_features_total": PREDICTION,
    "outrigger_request_score": PREDICTION,
    "outrigger_request_treatments": PREDICTION,
    "outrigger_request_users": PREDICTION,
    "outrigger_canary_stand_ins_total": PREDICTION,
    "outrigger_model_memory_bytes": IN_ENGINE,
    "outrigger_canary_decisions_total": TRIAL,
    "outrigger_canary_held_back": TRIAL,
    "outrigger_canary_left_to_live_total": TRIAL,
    "outrigger_canary_pauses_total": TRIAL,
    "outrigger_canary_requests_total": TRIAL,
    "outrigger_canary_shadows_total": TRIAL,
    "outrigger_canary_share": TRIAL,
    "outrigger_canary_share_mismatch": TRIAL,
    "outrigger_canary_starved_total": TRIAL,
    "outrigger_canary_starving": TRIAL,
    "outrigger_canary_time_ratio": TRIAL,
    "outrigger_canary_skew": PROFILE,
    "outrigger_tls_handshake_failures_total": TLS,
    "outrigger_tls_certificate_expiry_timestamp_seconds": TLS,
    "outrigger_trace_spans_total": TRACES,
    "outrigger_batcher_alone_total": BATCHER,
    "outrigger_batcher_divisions_total": BATCHER,
    "outrigger_batcher_refusals_total": BATCHER,
    "outrigger_batcher_run_calls": BATCHER,
    "outrigger_batcher_run_rows": BATCHER,
    "outrigger_batcher_wait_seconds": BATCHER,
    "outrigger_batcher_waiting_bytes": BATCHER,
    "outrigger_batcher_waiting_calls": BATCHER,
    "alphafm_predict": ROWS,
    "alphafm_softmax_predict": ROWS,
    "alphafm_softmax_xgboost_predict": ROWS,
    "alphafm_xgboost_predict": ROWS,
    "http_xgboost_serving": ROWS,
    "xgboost_predict": ROWS,
    "xgboost_serving": ROWS,
}

# XGBoost Serving's own metrics have the names of that server.
_NAME = r"(?:outrigger|process|alphafm|xgboost|http_xgboost)_\w+"
_SELECTOR = re.compile(rf"\b({_NAME})(?:\{{([^}}]*)\}})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_OPERATORS = {
    "=": lambda wanted, value: wanted == value,
    "!=": lambda wanted, value: wanted != value,
    "=~": lambda wanted, value: bool(re.fullmatch(wanted, value)),
    "!~": lambda wanted, value: not re.fullmatch(wanted, value),
}
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")


@dataclass(frozen=True)
class Selector:
    """A metric in a query, with its matchers: label, operator, value."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]

    @property
    def family(self) -> str:
        """The declared name of the metric, without a histogram's suffix."""
        return re.sub(r"_(bucket|sum|count)$", "", self.metric)

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """True if the matchers accept a sample with these labels, of any target and model."""
        return all(
            _OPERATORS[operator](value, labels.get(label, ""))
            for label, operator, value in self.matchers
            if label not in TARGET_LABELS | {"model"}
        )


def selectors(query: str) -> list[Selector]:
    """All of the project's metrics in a query."""
    return [
        Selector(hit[1], tuple(_MATCHER.findall(hit[2] or ""))) for hit in _SELECTOR.finditer(query)
    ]


def groupings(query: str) -> set[str]:
    """The labels that a query groups by or matches on."""
    found = (label for hit in _GROUPING.finditer(query) for label in hit[1].split(","))
    return {each.strip() for each in found}


def declared() -> dict[str, set[str]]:
    """Every metric of the binary's reference page, with its labels."""
    printed = subprocess.run(
        [outrigger(), "serve", "--print-reference", "metrics"],
        capture_output=True,
        text=True,
        check=True,
    )
    return _rows(printed.stdout)


def _rows(page: str) -> dict[str, set[str]]:
    """The metrics of a reference page, with their labels."""
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| ([^|]*) \|", page, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def batch_declared() -> dict[str, set[str]]:
    """Every metric of the reference page of batch jobs, which the crates' tests keep current."""
    return _rows((repository() / "docs" / "batch-metrics.md").read_text())


def families(scrape: str) -> dict[str, list[Mapping[str, str]]]:
    """The labels of a scrape's samples, by metric."""
    found: dict[str, list[Mapping[str, str]]] = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", scrape, re.MULTILINE):
        pairs = {label: value for label, _, value in _MATCHER.findall(labels)}
        found.setdefault(re.sub(r"_(bucket|sum|count)$", "", name), []).append(pairs)
    return found


def alerts(rendered: Rendered) -> Iterator[dict[str, Any]]:
    """The alerts of a PrometheusRule."""
    for group in rendered.one("PrometheusRule")["spec"]["groups"]:
        yield from group["rules"]


def dashboard(rendered: Rendered, file: str = "outrigger.json") -> dict[str, Any]:
    """A Grafana dashboard in the ConfigMap: that of the control plane, or `BATCH_BOARD`."""
    name = f"{rendered.workload['metadata']['name']}-dashboard"
    return json.loads(rendered.one("ConfigMap", name)["data"][file])


def dashboard_queries(board: Mapping[str, Any]) -> Iterator[str]:
    """The dashboard's queries, also of annotations, with values in place of Grafana's variables."""
    annotations = (each["expr"] for each in board["annotations"]["list"])
    targets = (target["expr"] for panel in board["panels"] for target in panel.get("targets", ()))
    for query in (*annotations, *targets):
        known = query.replace("$__rate_interval", "5m")
        yield re.sub(r"\$(namespace|job|pod|model)\b", r"some-\1", known)


def dashboard_variables(board: Mapping[str, Any]) -> Iterator[str]:
    """The selectors of the dashboard's variables: the first argument of Grafana's
    label_values(selector, label).
    """
    for each in board["templating"]["list"]:
        if each["type"] == "query":
            selector = re.fullmatch(r"label_values\((.+), \w+\)", each["query"]["query"])
            yield selector[1]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs promtool to its end."""
    command = [str(shutil.which("promtool")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write_as_recordings(queries: Iterator[str], file: Path) -> None:
    """Wraps queries as recording rules, the only form in which promtool checks them."""
    rules = [{"record": f"query:{at}", "expr": query} for at, query in enumerate(queries)]
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
