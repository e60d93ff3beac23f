"""Settings that Outrigger reloads change without new pods; others need new pods."""

import json
import re

import pytest
import yaml

from outrigger_testenv.binary import repository
from outrigger_testenv.chart.cases import CASES
from outrigger_testenv.chart.render import CHART, render
from outrigger_testenv.stack import merge

# With certificates, which some settings of config.tls need.
CERTIFICATES = {"existingSecret": "tls", "clientCA": {"existingSecret": "ca"}}
VALUES = merge(CASES["minimal"].values, {"tls": CERTIFICATES})
BEFORE = render(VALUES)
# A value for each kind of setting that is the default of none.
OTHER = {
    "ModelCanaryConfig": {"ramp": {"share": 0.07}},
    "duration": "77s",
    "list of prefix and keys": [{"prefix": "registry.example/team", "keys": []}],
    "list of rights": ["read"],
    "list of texts": ["registry.example/other"],
    "none, requests or both": "both",
    "normal or batch": "normal",
    "number": 77,
    "number, 0 to 1": 0.77,
    "numbers by caller": {"token:gateway": 77},
    "numbers by model": {"churn": 77},
    "path": "/var/lib/other",
    "plain, server, optional or mutual": "optional",
    "rights by caller": {"*": ["read"]},
    "size": "77MiB",
    "tag": "other",
    "text": "http://other:77",
    "text or json": "text",
    "true or false": False,
}


def settings():
    """Every setting that the chart takes: section, key, another value, and whether it reloads."""
    page = (repository() / "docs" / "configuration.md").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]
    row = re.compile(r"^\| `(\w+)` \| (.+?) \| .+? \| (yes)? \| `OUTRIGGER_", re.M)
    for part in page.split("\n## ")[1:]:
        section, rows = part.split("\n", 1)
        taken = schema["properties"].get(section, {}).get("properties", {})
        for key, kind, reloads in row.findall(rows):
            if key in taken:
                yield section, key, OTHER[kind], bool(reloads)


def test_the_page_marks_some_of_the_settings_that_the_chart_takes():
    assert {reloads for _, _, _, reloads in settings()} == {True, False}


def changed(values):
    return render(merge(VALUES, values))


@pytest.mark.parametrize(("section", "key", "value", "reloads"), settings())
def test_a_setting_makes_new_pods_unless_it_reloads(section, key, value, reloads):
    new = changed({"config": {section: {key: value}}})
    assert new.config != BEFORE.config
    assert (new.workload == BEFORE.workload) == reloads


def test_a_change_of_models_alone_restarts_no_pod():
    models = [{"name": "churn", "image": "registry.example/other/churn", "preload": True}]
    new = changed({"config": {"models": models}})
    assert yaml.safe_load(new.config["outrigger.yaml"])["models"] == models
    assert new.workload == BEFORE.workload
    others = [each for each in new.objects if each not in BEFORE.objects]
    assert [each["kind"] for each in others] == ["ConfigMap"]


def test_the_engines_files_make_new_pods():
    new = changed({"engine": {"batching": {"enabled": True}}})
    assert checksum(new) != checksum(BEFORE)


def checksum(rendered):
    return rendered.workload["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
