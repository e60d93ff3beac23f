"""The chart's output for all cases of values: as expected, valid, restricted."""

import base64
import functools
import shutil

import pytest
import yaml

from outrigger_testenv.binary import repository
from outrigger_testenv.chart import security, validity
from outrigger_testenv.chart.cases import CASES, NEWEST
from outrigger_testenv.chart.render import CHART, lint, render, render_with_program
from outrigger_testenv.stack import merge

UPDATE = "`make chart-golden` writes it again"
# Values that are valid only as a whole.
WHOLE = ("batching", "request", "nodeAffinity", "behavior")


def test_lint_finds_nothing(case):
    assert lint(case.values, case.oldest) == []


def test_the_icon_is_the_pages():
    icon = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"]
    kind, _, encoded = icon.partition(",")
    assert kind == "data:image/svg+xml;base64"
    page = repository() / "crates" / "console" / "src" / "page"
    assert base64.b64decode(encoded) == (page / "icon.svg").read_bytes()


def test_the_license_is_the_repositorys():
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"] == {
        "artifacthub.io/license": "Apache-2.0"
    }
    assert (CHART / "LICENSE").read_bytes() == (repository() / "LICENSE").read_bytes()


def test_objects_are_the_golden_ones(case):
    assert case.rendered.text == case.golden.read_text(), UPDATE


def test_notes_are_the_golden_ones(case):
    assert case.rendered.notes == case.golden_notes.read_text(), UPDATE


def test_every_object_is_valid_from_the_oldest_to_the_newest_cluster(case):
    problems = [
        validity.problem(each, version)
        for version in (case.oldest, NEWEST)
        for each in case.rendered.objects
    ]
    assert [each for each in problems if each] == []


def test_every_value_by_itself_makes_valid_objects():
    minimal = CASES["minimal"]
    for path, value in leaves(CASES["everything"].values):
        values = functools.reduce(lambda inner, key: {key: inner}, reversed(path), value)
        for each in render(merge(minimal.values, values)).objects:
            if each not in minimal.rendered.objects:
                assert validity.problem(each, NEWEST) is None, path


def leaves(values, path=()):
    """The leaves of a tree of values, with their paths."""
    for key, value in values.items():
        if isinstance(value, dict) and key not in WHOLE:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def test_every_object_is_in_the_releases_namespace_and_labelled(case):
    for each in case.rendered.objects:
        metadata = each["metadata"]
        assert metadata["namespace"] == "models"
        assert metadata["labels"]["app.kubernetes.io/instance"] == "demo"


def test_selectors_find_the_pods_and_only_them(case):
    labels = case.rendered.workload["spec"]["template"]["metadata"]["labels"]
    tests = [each["metadata"]["labels"] for each in case.rendered.of_kind("Pod")]
    selectors = [
        case.rendered.workload["spec"]["selector"]["matchLabels"],
        *(each["spec"]["selector"] for each in case.rendered.of_kind("Service")),
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not any(selector.items() <= each.items() for each in tests)


def test_restricted_pod_security(case):
    for pod in [case.rendered.workload["spec"]["template"], *case.rendered.of_kind("Pod")]:
        annotations = pod["metadata"].get("annotations")
        assert security.violations(pod["spec"], annotations) == []


@pytest.mark.skipif(shutil.which("helm") is None, reason="no helm on PATH")
def test_a_helm_binary_renders_the_same(case):
    def by_name(objects):
        return {(each["kind"], each["metadata"]["name"]): each for each in objects}

    assert by_name(render_with_program(case.values)) == by_name(case.rendered.objects)
