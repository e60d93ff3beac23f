"""Values of the previous version's chart, and the objects that it rendered from them."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import yaml

from outrigger_testenv.chart.render import NAMESPACE, RELEASE, Object, Rendered, containers
from outrigger_testenv.upgrade.configuration import serve
from outrigger_testenv.upgrade.places import CHART_VALUES


@dataclass(frozen=True)
class Case:
    """One release: its values, what the previous version rendered, and what it would run with."""

    name: str
    # The oldest cluster that takes the objects.
    oldest: str

    @property
    def values(self) -> Mapping[str, Any]:
        """The values that the release was installed with."""
        return yaml.safe_load((CHART_VALUES / f"{self.name}.values.yaml").read_text())

    @property
    def rendered_file(self) -> Path:
        """The objects that the previous chart rendered."""
        return CHART_VALUES / f"{self.name}.rendered.yaml"

    @property
    def rendered(self) -> Rendered:
        """The same, read."""
        return Rendered({"outrigger/templates/all.yaml": self.rendered_file.read_text()})

    @property
    def dumped(self) -> Path:
        """The configuration in force in the previous version's pod."""
        return CHART_VALUES / f"{self.name}.dumped.yaml"


CASES = {case.name: case for case in (Case("deployment", "1.31"), Case("stateful", "1.29"))}


def in_force(rendered: Rendered) -> str:
    """The configuration that the pod's control plane runs with, as `--dump-config` prints it."""
    variables = rendered.container("outrigger").get("env", [])
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "outrigger.yaml"
        file.write_text(rendered.config["outrigger.yaml"])
        literal = {each["name"]: each["value"] for each in variables if "value" in each}
        done = serve("--dump-config", file, literal)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout


def of_others(pod: Object) -> set[tuple[str, str, str]]:
    """The mounts of a pod that the chart has not made: container, kind and name."""
    kinds = {
        "secret": "secretName",
        "configMap": "name",
        "persistentVolumeClaim": "claimName",
        "image": "reference",
    }
    volumes = {
        each["name"]: (kind, each[kind][field])
        for each in pod.get("volumes", [])
        for kind, field in kinds.items()
        if kind in each
    }
    return {
        (container["name"], *volumes[mount["name"]])
        for container in containers(pod)
        for mount in container.get("volumeMounts", [])
        if mount["name"] in volumes and not volumes[mount["name"]][1].startswith(f"{RELEASE}-")
    }


def write(chart: Path) -> None:
    """Writes the rendered objects anew, by a chart and by the binary that OUTRIGGER_BIN names."""
    loaded = helm_python.Chart.load(chart)
    for case in CASES.values():
        files = loaded.render(dict(case.values), name=RELEASE, namespace=NAMESPACE)
        case.rendered_file.write_text(Rendered(files).text)
        case.dumped.write_text(in_force(case.rendered))
