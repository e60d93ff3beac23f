"""Manifests for users with their own pod: the kustomize base, and the snippet of the page."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.chart import security, validity
from outrigger_testenv.chart.cases import CASES, NEWEST
from outrigger_testenv.chart.render import containers, render
from outrigger_testenv.stack import merge

BASE = repository() / "deploy" / "kustomize" / "base"
PAGE = repository() / "docs" / "install.md"


def base_objects():
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    return [yaml.safe_load((BASE / each).read_text()) for each in kustomization["resources"]]


def base_pod():
    return next(each for each in base_objects() if each["kind"] == "Deployment")["spec"][
        "template"
    ]["spec"]


def blocks(kind):
    """The code blocks of the page in one language."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def snippet():
    """The pod in the page's snippet."""
    pods = [each for each in map(yaml.safe_load, blocks("yaml")) if each.get("kind") == "Pod"]
    assert len(pods) == 1
    return pods[0]


def check_config(file):
    command = [outrigger(), "serve", "--config", file, "--check-config"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_base_is_valid_and_restricted():
    problems = [
        validity.problem(each, version) for each in base_objects() for version in ("1.29", NEWEST)
    ]
    assert [each for each in problems if each] == []
    assert security.violations(base_pod()) == []


def test_the_bases_pod_is_the_charts():
    chart = json.loads(
        json.dumps(CASES["minimal"].rendered.pod).replace("demo-outrigger", "outrigger")
    )
    del chart["topologySpreadConstraints"]
    for each in chart["containers"]:
        each["image"] = each["image"].removeprefix("registry.example/")
    assert base_pod() == chart


def test_the_bases_configuration_is_the_charts_and_valid(tmp_path):
    ours = yaml.safe_load((BASE / "outrigger.yaml").read_text())
    chart = yaml.safe_load(CASES["minimal"].rendered.config["outrigger.yaml"])
    for section, settings in ours.items():
        assert settings.items() <= chart[section].items()
    assert (BASE / "models.config").read_text() == CASES["minimal"].rendered.config["models.config"]
    assert check_config(BASE / "outrigger.yaml").returncode == 0


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on PATH")
def test_kustomize_builds_the_overlay_of_the_page(tmp_path):
    overlay = next(each for each in blocks("yaml") if "kind: Kustomization" in each)
    shutil.copytree(BASE, tmp_path / "base")
    place = tmp_path / "overlay"
    place.mkdir()
    (place / "kustomization.yaml").write_text(
        re.sub(r"[\w./]*deploy/kustomize/base", "../base", overlay)
    )
    (place / "outrigger.yaml").write_text((BASE / "outrigger.yaml").read_text())
    built = subprocess.run(
        ["kubectl", "kustomize", place], capture_output=True, text=True, check=True
    )
    objects = [each for each in yaml.safe_load_all(built.stdout) if each]
    assert [validity.problem(each, NEWEST) for each in objects] == [None] * len(objects)
    pod = next(each for each in objects if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    images = {each["name"]: each["image"] for each in containers(pod)}
    assert images["outrigger"].startswith("registry.example/")
    made = next(each for each in objects if each["kind"] == "ConfigMap")["metadata"]["name"]
    assert pod["volumes"][0]["configMap"]["name"] == made


def test_the_pages_snippet_is_valid_and_restricted():
    assert validity.problem(snippet(), NEWEST) is None
    assert security.violations(snippet()["spec"]) == []


def test_the_pages_snippet_starts_the_same_processes_as_the_chart():
    chart = CASES["minimal"].rendered
    for each in snippet()["spec"]["initContainers"]:
        original = chart.container(each["name"])
        assert each["restartPolicy"] == "Always"
        for key in ("command", "args", "env", "volumeMounts", "securityContext"):
            assert each.get(key) == original.get(key), f"{each['name']}: {key}"
    assert not snippet()["spec"].get("shareProcessNamespace")


def test_the_pages_snippet_is_probed_as_the_chart_is():
    chart = CASES["minimal"].rendered.container("outrigger")
    ports = {each["name"]: each["containerPort"] for each in chart["ports"]}
    (own,) = (each for each in snippet()["spec"]["initContainers"] if each["name"] == "outrigger")
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = chart[kind]["httpGet"]
        by_number = {**chart[kind], "httpGet": {**asked, "port": ports[asked["port"]]}}
        assert own[kind] == by_number


def test_the_pages_values_are_taken():
    values = [each for each in map(yaml.safe_load, blocks("yaml")) if "kind" not in each]
    assert values
    for each in values:
        render(merge(CASES["minimal"].values, each))
