"""The output of both charts for all cases of values: as expected, valid, restricted."""

import base64
import functools
import shutil

import pytest
import yaml

from outrigger_testenv.binary import repository
from outrigger_testenv.chart import security, validity
from outrigger_testenv.chart.cases import ALL_CASES, NEWEST
from outrigger_testenv.chart.render import lint, render, render_with_program
from outrigger_testenv.stack import merge

UPDATE = "`make chart-golden` writes it again"
# Values that are valid only as a whole.
WHOLE = ("batching", "request", "nodeAffinity", "behavior")


def test_lint_finds_nothing(any_case):
    assert lint(any_case.values, any_case.oldest, any_case.chart) == []


def test_the_icon_is_the_pages(chart):
    icon = yaml.safe_load((chart / "Chart.yaml").read_text())["icon"]
    kind, _, encoded = icon.partition(",")
    assert kind == "data:image/svg+xml;base64"
    page = repository() / "crates" / "console" / "src" / "page"
    assert base64.b64decode(encoded) == (page / "icon.svg").read_bytes()


def test_the_license_is_the_repositorys(chart):
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["annotations"] == {
        "artifacthub.io/license": "Apache-2.0"
    }
    assert (chart / "LICENSE").read_bytes() == (repository() / "LICENSE").read_bytes()


def test_objects_are_the_golden_ones(any_case):
    assert any_case.rendered.text == any_case.golden.read_text(), UPDATE


def test_notes_are_the_golden_ones(any_case):
    assert any_case.rendered.notes == any_case.golden_notes.read_text(), UPDATE


def test_every_object_is_valid_from_the_oldest_to_the_newest_cluster(any_case):
    problems = [
        validity.problem(each, version)
        for version in (any_case.oldest, NEWEST)
        for each in any_case.rendered.objects
    ]
    assert [each for each in problems if each] == []


@pytest.mark.parametrize("of", ["", "batch-"])
def test_every_value_by_itself_makes_valid_objects(of):
    minimal = ALL_CASES[f"{of}minimal"]
    everything = ALL_CASES[f"{of}everything"].values
    # Mounts need them.
    volumes = {"extraVolumes": everything["extraVolumes"]}
    for path, value in leaves(everything):
        values = functools.reduce(lambda inner, key: {key: inner}, reversed(path), value)
        for each in render(merge(minimal.values, volumes | values), minimal.chart).objects:
            if each not in minimal.rendered.objects:
                assert validity.problem(each, NEWEST) is None, path


def leaves(values, path=()):
    """The leaves of a tree of values, with their paths."""
    for key, value in values.items():
        if isinstance(value, dict) and key not in WHOLE:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def test_every_object_is_in_the_releases_namespace_and_labelled(any_case):
    for each in any_case.rendered.objects:
        metadata = each["metadata"]
        assert metadata["namespace"] == "models"
        assert metadata["labels"]["app.kubernetes.io/instance"] == "demo"


def test_selectors_find_the_pods_and_only_them(any_case):
    labels = any_case.rendered.workload["spec"]["template"]["metadata"]["labels"]
    tests = [each["metadata"]["labels"] for each in any_case.rendered.of_kind("Pod")]
    workload = any_case.rendered.workload["spec"]
    policies = any_case.rendered.of_kind("NetworkPolicy")
    selectors = [
        # A Job selects its pods by labels of its own.
        *([workload["selector"]["matchLabels"]] if "selector" in workload else []),
        *(each["spec"]["podSelector"]["matchLabels"] for each in policies),
        *(each["spec"]["selector"] for each in any_case.rendered.of_kind("Service")),
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not any(selector.items() <= each.items() for each in tests)


def test_restricted_pod_security(any_case):
    for pod in [any_case.rendered.workload["spec"]["template"], *any_case.rendered.of_kind("Pod")]:
        annotations = pod["metadata"].get("annotations")
        assert security.violations(pod["spec"], annotations) == []


@pytest.mark.skipif(shutil.which("helm") is None, reason="no helm on PATH")
def test_a_helm_binary_renders_the_same(any_case):
    def by_name(objects):
        return {(each["kind"], each["metadata"]["name"]): each for each in objects}

    assert by_name(render_with_program(any_case.values, any_case.chart)) == by_name(
        any_case.rendered.objects
    )
