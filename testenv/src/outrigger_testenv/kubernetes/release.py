"""A release of a chart on a running API server, by Helm's SDK."""

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helm_python

from outrigger_testenv.chart.render import CHART, RELEASE
from outrigger_testenv.kubernetes.client import Object
from outrigger_testenv.kubernetes.server import Server

# The collections with the objects of the charts, by their kinds.
COLLECTIONS = {
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "Service": "api/v1/namespaces/{}/services",
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "apis/apps/v1/namespaces/{}/statefulsets",
    "HorizontalPodAutoscaler": "apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "Job": "apis/batch/v1/namespaces/{}/jobs",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
_RECORD = "sh.helm.release.v1"


class Release:
    """A release in a namespace that exists. Helm's errors are helm_python.HelmError."""

    def __init__(self, server: Server, namespace: str, chart: Path = CHART):
        self.client, self.namespace = server.client, namespace
        self._helm = helm_python.Config(kubeconfig_path=server.kubeconfig, namespace=namespace)
        self._chart = helm_python.Chart.load(chart)

    def install(self, values: Mapping[str, Any]) -> "Release":
        """Installs the chart."""
        self._helm.install(self._chart, RELEASE, dict(values), namespace=self.namespace)
        return self

    def upgrade(self, values: Mapping[str, Any], dry_run: str | None = None) -> str:
        """Upgrades to these values only; returns the manifest. `dry_run` is client or server."""
        return self._helm.upgrade(
            self._chart,
            RELEASE,
            dict(values),
            namespace=self.namespace,
            reset_values=True,
            dry_run=dry_run,
        )["manifest"]

    def path(self, kind: str, name: str) -> str:
        """The path of an object."""
        return f"/{COLLECTIONS[kind].format(self.namespace)}/{name}"

    def objects(self) -> dict[tuple[str, str], Object]:
        """The objects of the release, by kind and name."""
        found = {}
        for kind, path in COLLECTIONS.items():
            for each in self.client.get(f"/{path.format(self.namespace)}")["items"]:
                if RELEASE in each["metadata"].get("annotations", {}).values():
                    # The items of a list do not name their kind.
                    found[kind, each["metadata"]["name"]] = {"kind": kind, **each}
        return found

    def versions(self) -> dict[tuple[str, str], str]:
        """The version of each object of the release, which each change of it renews."""
        return {
            place: each["metadata"]["resourceVersion"] for place, each in self.objects().items()
        }

    def workload(self) -> Object:
        """The only Deployment or StatefulSet."""
        kinds = ("Deployment", "StatefulSet")
        (found,) = (each for (kind, _), each in self.objects().items() if kind in kinds)
        return found

    def scale(self, replicas: int) -> None:
        """Sets the number of pods as an autoscaler does."""
        workload = self.workload()
        path = self.path(workload["kind"], workload["metadata"]["name"])
        self.client.update(f"{path}/scale", {"spec": {"replicas": replicas}})

    def forget_how_it_was_applied(self) -> None:
        """Makes the release like one of Helm 3, which does not apply objects on the server."""
        for (kind, name), found in self.objects().items():
            managers = [
                {**each, "operation": "Update"} for each in found["metadata"]["managedFields"]
            ]
            for each in managers:
                # The server's defaults count as written by who creates an object.
                if "f:template" in each["fieldsV1"].get("f:spec", {}):
                    each["fieldsV1"]["f:spec"]["f:replicas"] = {}
            changes = {"metadata": {"managedFields": managers}}
            self.client.update(self.path(kind, name), changes)
        secrets = f"/api/v1/namespaces/{self.namespace}/secrets"
        for each in self.client.get(secrets)["items"]:
            if each["metadata"]["name"].startswith(_RECORD):
                stored = base64.b64decode(base64.b64decode(each["data"]["release"]))
                record = json.loads(gzip.decompress(stored))
                record.pop("apply_method", None)
                packed = base64.b64encode(gzip.compress(json.dumps(record).encode()))
                data = {"release": base64.b64encode(packed).decode()}
                self.client.update(f"{secrets}/{each['metadata']['name']}", {"data": data})
