"""Values of the previous version's chart: a release of it is upgraded in place."""

import pytest

from outrigger_testenv.chart import validity
from outrigger_testenv.chart.cases import NEWEST
from outrigger_testenv.chart.pod import LocalPod
from outrigger_testenv.chart.render import containers, lint, render
from outrigger_testenv.upgrade.chart import CASES, in_force, of_others
from outrigger_testenv.upgrade.configuration import differences, dumped

# All that Kubernetes lets an update of a StatefulSet change.
CHANGEABLE = {
    "replicas",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
}


@pytest.fixture(params=list(CASES))
def case(request):
    """One release after the other."""
    return CASES[request.param]


@pytest.fixture
def now(case):
    """The present chart with the previous values."""
    return render(case.values)


def by_name(rendered):
    return {(each["kind"], each["metadata"]["name"]): each for each in rendered.objects}


def test_the_values_are_taken_and_give_valid_objects(case, now):
    assert lint(case.values, case.oldest) == []
    problems = [
        validity.problem(each, version) for version in (case.oldest, NEWEST) for each in now.objects
    ]
    assert [each for each in problems if each] == []


def test_no_object_is_gone(case, now):
    assert set(by_name(case.rendered)) - set(by_name(now)) == set()


def test_the_workload_is_updated_in_place(case, now):
    old, new = case.rendered.workload, now.workload
    assert (new["kind"], new["metadata"]["name"]) == (old["kind"], old["metadata"]["name"])
    kept = {"selector"} if old["kind"] == "Deployment" else set(old["spec"]) - CHANGEABLE
    assert "selector" in kept
    for field in kept:
        assert new["spec"][field] == old["spec"][field], field


def test_services_have_the_same_ports_and_find_the_same_pods(case, now):
    found = by_name(now)
    services = case.rendered.of_kind("Service")
    assert services
    for service in services:
        new = found["Service", service["metadata"]["name"]]
        assert new["spec"] == service["spec"]


def test_the_control_plane_runs_with_the_same_configuration(case, now):
    before = dumped(case.dumped.read_text())
    assert list(differences(before, dumped(in_force(now)))) == []


def test_the_configuration_is_valid_in_the_pod(now):
    with LocalPod(now) as pod:
        done = pod.run(now.container("outrigger"), "--check-config")
    assert (done.returncode, done.stdout.strip()) == (0, "the configuration is valid"), done.stderr


def test_the_engine_runs_with_the_same_flags_image_and_resources(case, now):
    old, new = case.rendered.container("engine"), now.container("engine")
    assert set(old["args"]) - set(new["args"]) == set()
    assert new["command"] == ["timeout", "0", *old["command"]]
    for field in ("image", "resources"):
        assert new[field] == old[field], field


def test_the_pod_mounts_existing_volumes_and_secrets(case, now):
    assert of_others(case.rendered.pod) - of_others(now.pod) == set()


def test_every_container_is_there_with_its_variables_and_ports(case, now):
    found = {each["name"]: each for each in containers(now.pod)}
    for old in containers(case.rendered.pod):
        new = found[old["name"]]
        assert new["image"] == old["image"]
        for field in ("env", "envFrom", "ports"):
            gone = [each for each in old.get(field, []) if each not in new.get(field, [])]
            assert gone == [], (old["name"], field)
