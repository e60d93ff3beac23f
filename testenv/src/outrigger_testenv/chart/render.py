"""Renders the charts with Helm's SDK; no cluster, no network."""

import functools
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import yaml

from outrigger_testenv.binary import repository

CHART = repository() / "deploy" / "helm" / "outrigger"
BATCH_CHART = CHART.with_name("outrigger-batch")
RELEASE = "demo"
NAMESPACE = "models"
# The Kubernetes version that Helm's SDK renders for.
SDK_CLUSTER = "1.36"

Object = dict[str, Any]


@dataclass(frozen=True)
class Rendered:
    """A rendered chart: the text of every template, by its path."""

    files: Mapping[str, str]

    @property
    def notes(self) -> str:
        """The notes that Helm prints after an installation."""
        (notes,) = (text for path, text in self.files.items() if path.endswith("/NOTES.txt"))
        return notes.strip() + "\n"

    @property
    def text(self) -> str:
        """All objects as one YAML stream, in the order of the templates' names."""
        parts = (
            f"---\n# Source: {path}\n{text.strip()}\n"
            for path, text in sorted(self.files.items())
            if path.endswith(".yaml") and text.strip()
        )
        return "".join(parts)

    @functools.cached_property
    def objects(self) -> list[Object]:
        """The Kubernetes objects, those of `helm test` included."""
        return [each for each in yaml.safe_load_all(self.text) if each]

    def of_kind(self, kind: str) -> list[Object]:
        """The objects of one kind."""
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str, name: str | None = None) -> Object:
        """The only object of a kind, and of a name if one is given."""
        found = [
            each for each in self.of_kind(kind) if name is None or each["metadata"]["name"] == name
        ]
        if len(found) != 1:
            raise LookupError(f"{len(found)} objects are {kind} {name or ''}")
        return found[0]

    @property
    def workload(self) -> Object:
        """The Deployment, StatefulSet or Job."""
        kinds = ("Deployment", "StatefulSet", "Job")
        return next(each for each in self.objects if each["kind"] in kinds)

    @property
    def pod(self) -> Object:
        """The specification of the workload's pods."""
        return self.workload["spec"]["template"]["spec"]

    @property
    def claims(self) -> list[Object]:
        """The volumes that a StatefulSet creates for every pod."""
        return [
            {"name": each["metadata"]["name"], "persistentVolumeClaim": {}}
            for each in self.workload["spec"].get("volumeClaimTemplates", [])
        ]

    @property
    def config(self) -> Mapping[str, str]:
        """The files of the pods' configuration, by name."""
        return self.one("ConfigMap", self.workload["metadata"]["name"])["data"]

    def container(self, name: str) -> Object:
        """A container of the pod, native sidecars included."""
        return next(each for each in containers(self.pod) if each["name"] == name)


def containers(pod: Object) -> Iterator[Object]:
    """All containers of a pod's specification, init containers first."""
    yield from pod.get("initContainers", [])
    yield from pod["containers"]


def render(values: Mapping[str, Any], chart: Path = CHART, namespace: str = NAMESPACE) -> Rendered:
    """Renders a chart with these values. Raises helm_python.HelmError."""
    return Rendered(_chart(chart).render(dict(values), name=RELEASE, namespace=namespace))


def lint(values: Mapping[str, Any], version: str, chart: Path = CHART) -> list[str]:
    """The findings of a strict `helm lint` for a cluster of this version."""
    report = helm_python.lint(chart, dict(values), strict=True, kube_version=f"v{version}.0")
    return [f"{each['path']}: {each['error']}" for each in report["messages"]] + report["errors"]


def render_with_program(values: Mapping[str, Any], chart: Path = CHART) -> list[Object]:
    """The objects that `helm template` of the helm on PATH renders."""
    place = ("--namespace", NAMESPACE, "--kube-version", SDK_CLUSTER)
    done = subprocess.run(
        [shutil.which("helm"), "template", RELEASE, chart, *place, "-f", "-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=True,
    )
    return [each for each in yaml.safe_load_all(done.stdout) if each]


@functools.cache
def _chart(chart: Path) -> helm_python.Chart:
    return helm_python.Chart.load(chart)
