"""The values that the charts are rendered with."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outrigger_testenv.binary import repository
from outrigger_testenv.chart.render import BATCH_CHART, CHART, Rendered, render
from outrigger_testenv.stack import merge

TESTS = repository() / "testenv" / "tests" / "chart"
NEWEST = "1.37"


@dataclass(frozen=True)
class Case:
    """A set of values: a file of the tests over files of the chart, valid from the oldest cluster
    version given.
    """

    name: str
    oldest: str
    over: tuple[str, ...] = ()
    chart: Path = CHART

    @functools.cached_property
    def values(self) -> Mapping[str, Any]:
        """The values of all files, merged as by `helm -f`."""
        files = [*(self.chart / each for each in self.over), TESTS / "values" / f"{self.name}.yaml"]
        return functools.reduce(merge, (yaml.safe_load(each.read_text()) for each in files), {})

    @functools.cached_property
    def rendered(self) -> Rendered:
        """The chart rendered with the values."""
        return render(self.values, self.chart)

    @property
    def golden(self) -> Path:
        """The file with the expected objects."""
        return TESTS / "golden" / f"{self.name}.yaml"

    @property
    def golden_notes(self) -> Path:
        """The file with the expected notes."""
        return TESTS / "golden" / f"{self.name}.txt"


CASES = {
    case.name: case
    for case in (
        # Native sidecars need 1.29.
        Case("minimal", "1.29"),
        Case("secured", "1.29"),
        # Image volumes need 1.31.
        Case("everything", "1.31"),
        Case("plain-container", "1.25"),
        Case("old-cluster", "1.25"),
        Case("openshift", "1.29"),
        Case("stateful", "1.29"),
        Case("existing-claim", "1.29"),
        Case("gpu", "1.29", over=("values-gpu.yaml",)),
        Case("trees", "1.25"),
        Case("two-engines", "1.29"),
        Case("onnx", "1.29"),
    )
}

# Those of the chart of batch jobs.
BATCH_CASES = {
    case.name: case
    for case in (
        # Success policies are in every 1.31.
        Case("batch-minimal", "1.31", chart=BATCH_CHART),
        Case("batch-store", "1.31", chart=BATCH_CHART),
        Case("batch-everything", "1.31", chart=BATCH_CHART),
        Case("batch-old-cluster", "1.29", chart=BATCH_CHART),
    )
}
ALL_CASES = CASES | BATCH_CASES

# Those whose pod has a container of TensorFlow Serving.
WITH_ENGINE = [
    case for case in CASES.values() if case.values.get("engine", {}).get("enabled", True)
]
