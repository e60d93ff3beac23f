"""Validates objects strictly against the schemas of Kubernetes and the Prometheus operator."""

import json

import jsonschema
import kubernetes_validate

from outrigger_testenv.chart.cases import TESTS
from outrigger_testenv.chart.render import Object

OPERATOR = "monitoring.coreos.com/v1"


def problem(made: Object, version: str) -> str | None:
    """The problem of an object for a cluster of this version; `None` if it is valid."""
    try:
        if made["apiVersion"] == OPERATOR:
            jsonschema.Draft202012Validator(_schema(made["kind"])).validate(made)
        else:
            kubernetes_validate.validate(made, version, strict=True)
    except jsonschema.ValidationError as error:
        path = ".".join(str(part) for part in error.absolute_path)
        return f"{made['kind']} {made['metadata']['name']}, {version}: {path}: {error.message}"
    return None


def _schema(kind: str) -> dict:
    return json.loads((TESTS / "schemas" / f"{kind}.json").read_text())
