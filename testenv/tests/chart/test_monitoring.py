"""Alerts and dashboard: promtool accepts them, and the binary declares the metrics they use.

The stage orchestration tests on running processes that the declared metrics are exposed.
"""

import functools
import re
from dataclasses import dataclass

import pytest
import yaml

from outrigger_testenv.binary import repository
from outrigger_testenv.chart import prometheus
from outrigger_testenv.chart.cases import ALL_CASES, TESTS
from outrigger_testenv.chart.render import BATCH_CHART, CHART, Rendered, render
from outrigger_testenv.stack import merge


@dataclass(frozen=True)
class Watched:
    """The monitoring of a chart. The names of its files and cases begin with `of`."""

    of: str = ""

    @functools.cached_property
    def rendered(self) -> Rendered:
        """Monitor, rules and dashboards, with no alert left out."""
        case = ALL_CASES[f"{self.of}everything"]
        values = {"monitoring": {"rules": {"disabled": []}}}
        return render(merge(case.values, values), case.chart)

    @functools.cached_property
    def alerts(self) -> list:
        """The alerts."""
        return list(prometheus.alerts(self.rendered))

    @property
    def rules(self) -> dict:
        """The file of rules, as it is committed."""
        chart = ALL_CASES[f"{self.of}everything"].chart
        return yaml.safe_load((chart / "monitoring" / "alerts.yaml").read_text())

    @property
    def scenarios(self) -> dict:
        """The situations in which alerts fire, and do not."""
        return yaml.safe_load((TESTS / f"{self.of}alerts.yaml").read_text())

    @property
    def page(self) -> str:
        """The page with a section for each alert: its effect, its cause and its remedy."""
        return (repository() / "docs" / f"{self.of}alerts.md").read_text()


SERVER, BATCH = Watched(), Watched("batch-")


@pytest.fixture(params=[SERVER, BATCH], ids=["server", "batch"])
def watched(request):
    """Each chart in turn."""
    return request.param


@pytest.fixture(scope="module")
def everything():
    """Monitor, rules and dashboards of the control plane's chart."""
    return SERVER.rendered


@pytest.fixture(scope="module")
def queries(boards):
    """Every query, by its place."""
    alerts = {each["alert"]: each["expr"] for each in (*SERVER.alerts, *BATCH.alerts)}
    board = [query for board in boards for query in prometheus.dashboard_queries(board)]
    return alerts | {f"dashboard {at}: {query}": query for at, query in enumerate(board)}


@pytest.fixture(scope="module")
def boards(everything):
    """The dashboards: that of the control plane, and that of batch jobs."""
    return [
        prometheus.dashboard(everything),
        prometheus.dashboard(everything, prometheus.BATCH_BOARD),
    ]


def declared():
    """Every metric that the binary declares, with its labels."""
    return prometheus.declared() | prometheus.batch_declared()


needs_promtool = pytest.mark.needs("promtool")


@needs_promtool
def test_promtool_takes_the_rendered_rules(watched, tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(watched.rendered.one("PrometheusRule")["spec"]))
    done = prometheus.promtool("check", "rules", "--lint-fatal", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(watched.alerts)} rules found" in done.stdout


@needs_promtool
def test_promtool_takes_the_dashboards_queries(boards, tmp_path):
    file = tmp_path / "queries.yaml"
    for board in boards:
        prometheus.write_as_recordings(prometheus.dashboard_queries(board), file)
        done = prometheus.promtool("check", "rules", file)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_alerts_fire_when_they_should_and_not_otherwise(watched, tmp_path):
    rules = watched.rules
    for rule in rules["groups"][0]["rules"]:
        del rule["annotations"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({**watched.scenarios, "rule_files": ["rules.yaml"]})
    )
    done = prometheus.promtool("test", "rules", tmp_path / "tests.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_situation_in_which_it_fires(watched):
    fired = {
        each["alertname"]
        for scenario in watched.scenarios["tests"]
        for each in scenario["alert_rule_test"]
        if each.get("exp_alerts")
    }
    assert {each["alert"] for each in watched.alerts} == fired


def test_every_metric_and_label_of_a_query_is_declared_by_the_binary(queries):
    metrics = declared()
    for where, query in queries.items():
        selectors = prometheus.selectors(query)
        assert selectors, where
        for selector in selectors:
            assert selector.family in metrics, f"{where}: {selector.metric}"
            labels = {label for label, _, _ in selector.matchers} - prometheus.TARGET_LABELS
            assert labels <= metrics[selector.family], f"{where}: {selector}"
        known = set().union(*(metrics[each.family] for each in selectors))
        assert prometheus.groupings(query) <= known | prometheus.TARGET_LABELS, where


def test_the_autoscalers_metric_is_there_from_the_start(everything):
    metrics = everything.one("HorizontalPodAutoscaler")["spec"]["metrics"]
    names = {each["pods"]["metric"]["name"] for each in metrics if each["type"] == "Pods"}
    assert names and names <= set(prometheus.declared()) - set(prometheus.LATER)


def test_every_metric_of_the_pages_is_declared_by_the_binary():
    pages = [*(repository() / "docs").glob("*.md"), CHART / "values.yaml"]
    # Names of crates, packages and log targets have the same form.
    others = {f"outrigger_{each.name}" for each in (repository() / "crates").iterdir()}
    others |= {"outrigger_testenv", "outrigger_exposure"}
    known = set(declared())
    for page in pages:
        named = set(re.findall(r"\boutrigger_[a-z_]+", page.read_text()))
        assert named - others <= known, page


def test_every_reason_in_a_query_is_one_of_the_table(queries):
    table = set(re.findall(r"^\| `(\w+)` ", (repository() / "docs/errors.md").read_text(), re.M))
    named = {
        value
        for query in queries.values()
        for selector in prometheus.selectors(query)
        for label, _, value in selector.matchers
        if label in ("reason", "outcome") and selector.family != "outrigger_canary_decisions_total"
    }
    assert named
    for pattern in named:
        for reason in pattern.split("|"):
            if reason not in ("OK", "ok", "unexpected"):
                assert any(re.fullmatch(reason, each) for each in table), reason


def test_every_query_is_about_the_release(queries):
    for where, query in queries.items():
        for selector in prometheus.selectors(query):
            labels = {label for label, _, _ in selector.matchers}
            assert {"namespace", "job"} <= labels, f"{where}: {selector}"


def test_alerts_name_the_release_and_the_job_that_the_monitor_gives(watched):
    endpoint = watched.rendered.one("PodMonitor")["spec"]["podMetricsEndpoints"][0]
    job = {each["targetLabel"]: each["replacement"] for each in endpoint["relabelings"]}["job"]
    for alert in watched.alerts:
        assert f'namespace="models",job="{job}"' in alert["expr"]
        assert 'job="outrigger' not in alert["expr"]


def test_every_alert_has_a_summary_and_a_severity(watched):
    for alert in watched.alerts:
        assert set(alert["annotations"]) == {"summary", "description"}
        assert alert["labels"]["severity"] in ("critical", "warning")


def test_the_page_has_every_alert_with_its_cause_and_remedy(watched):
    _, *sections = re.split(r"^## ", watched.page, flags=re.MULTILINE)
    sections = dict(each.split("\n", 1) for each in sections)
    assert list(sections) == [each["alert"] for each in watched.alerts]
    for alert, text in sections.items():
        form = r"\n\S.+?\n\n- \*\*Cause:\*\* \S.+\n- \*\*Remedy:\*\* \S.+\n$"
        assert re.match(form, text, re.DOTALL), alert


def test_every_alert_that_a_page_or_a_value_names_is_one():
    alerts = {each["alert"] for each in (*SERVER.alerts, *BATCH.alerts)}
    files = [*repository().glob("*.md"), *(repository() / "docs").glob("*.md")]
    for chart in (CHART, BATCH_CHART):
        files += (file for kind in ("yaml", "json", "t*") for file in chart.rglob(f"*.{kind}"))
    named = {
        (str(file.relative_to(repository())), name)
        for file in files
        for name in re.findall(r"\bOutrigger[A-Z]\w*", file.read_text())
    }
    assert len(named) > len(alerts)
    assert [(file, name) for file, name in sorted(named) if name not in alerts] == []


@pytest.mark.parametrize("file", ["outrigger.json", prometheus.BATCH_BOARD])
def test_panels_do_not_overlap_and_are_described(everything, file):
    taken = set()
    for panel in prometheus.dashboard(everything, file)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["type"] == "row" or panel["description"], panel["title"]


@pytest.mark.parametrize("file", ["outrigger.json", prometheus.BATCH_BOARD])
def test_every_variable_of_a_query_is_one_of_the_dashboards(everything, file):
    board = prometheus.dashboard(everything, file)
    known = {each["name"] for each in board["templating"]["list"]} | {"__rate_interval"}
    used = {
        name
        for panel in board["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"\$\{?(\w+)", target["expr"])
    }
    assert used and used <= known
