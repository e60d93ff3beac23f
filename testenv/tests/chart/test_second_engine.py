"""The chart's second engine, a server of the Open Inference Protocol."""

import pytest
import yaml
from helm_python import HelmError

from outrigger_testenv.chart.cases import CASES
from outrigger_testenv.chart.render import render
from outrigger_testenv.stack import merge

TWO = CASES["two-engines"]
REPOSITORY = "/var/lib/outrigger-repository"


def mount(rendered, container):
    """The mount of the repository in a container."""
    mounts = rendered.container(container)["volumeMounts"]
    return next(each for each in mounts if each["name"] == "repository")


def engines(rendered):
    return yaml.safe_load(rendered.config["outrigger.yaml"])["engines"]


def test_it_is_an_engine_of_the_configuration_beside_tensorflow_serving():
    found = engines(TWO.rendered)
    expected = {"kind": "oip", "endpoint": "127.0.0.1:8101", "repository": REPOSITORY}
    assert found["oip"] == {**expected, "max_in_flight": 64}
    assert found["default"]["kind"] == "tfserving"
    alone = render(merge(TWO.values, {"engine": {"enabled": False}}))
    assert set(engines(alone)) == {"oip"}
    assert "engine" not in [each["name"] for each in alone.pod["initContainers"]]


def test_only_the_control_plane_writes_the_repository():
    assert mount(TWO.rendered, "outrigger") == {"name": "repository", "mountPath": REPOSITORY}
    assert mount(TWO.rendered, "oip-engine")["readOnly"] is True
    arguments = TWO.rendered.container("oip-engine")["args"]
    assert f"--model-repository={REPOSITORY}" in arguments


def test_nothing_outside_of_the_pod_reaches_it():
    arguments = TWO.rendered.container("oip-engine")["args"]
    assert {"--grpc-address=127.0.0.1", "--allow-http=false"} <= set(arguments)
    assert "ports" not in TWO.rendered.container("oip-engine")
    policy = TWO.rendered.one("NetworkPolicy")["spec"]
    admitted = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert admitted == {"grpc", "http", "health"}


@pytest.mark.parametrize("native", [True, False])
def test_it_starts_before_and_ends_after_the_control_plane(native):
    rendered = render(merge(TWO.values, {"engine": {"nativeSidecar": native}}))
    engine = rendered.container("oip-engine")
    assert ("lifecycle" in engine) is not native
    place = "initContainers" if native else "containers"
    assert "oip-engine" in [each["name"] for each in rendered.pod[place]]


def test_the_notes_name_an_image_that_is_not_pinned():
    assert "oipEngine.image.digest" in TWO.rendered.notes


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"image": {"repository": ""}}, "oipEngine.image.repository is required"),
        ({"port": 8001}, "oipEngine.port: 8001 is a port of the control plane"),
        ({"image": {"tag": "latest"}}, "/oipEngine/image/tag"),
        ({"repositorySize": "20GB"}, "/oipEngine/repositorySize"),
    ],
)
def test_wrong_values_are_refused(values, complaint):
    with pytest.raises(HelmError, match=complaint):
        render(merge(TWO.values, {"oipEngine": values}))
