"""Upgrades of releases by Helm on a real API server: each keeps what runs, or is refused before
anything changes.
"""

import itertools
import re

import pytest
from helm_python import HelmError

from outrigger_testenv.chart.cases import BATCH_CASES, CASES
from outrigger_testenv.chart.render import BATCH_CHART, CHART
from outrigger_testenv.kubernetes import program
from outrigger_testenv.kubernetes.release import Release
from outrigger_testenv.kubernetes.server import Server
from outrigger_testenv.stack import merge

MINIMAL = CASES["minimal"].values
PERSISTENT = merge(MINIMAL, {"store": {"type": "persistent", "size": "20Gi"}})
SIX = {"replicaCount": 6}
SCALED = {"autoscaling": {"enabled": True, "minReplicas": 3}}
NAME = "demo-outrigger"
HELM = pytest.mark.parametrize("helm", [3, 4], ids=["helm-3", "helm-4"])
KINDS = pytest.mark.parametrize("values", [MINIMAL, PERSISTENT], ids=["deployment", "statefulset"])

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server():
    """An API server."""
    program.needs()
    with Server() as started:
        yield started


@pytest.fixture(scope="module")
def release(server):
    """Makes a release in a namespace of its own, as this version of Helm does."""

    def made(values, helm=4, chart=CHART):
        namespace = f"upgrade-{next(_numbers)}"
        content = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        server.client.create("/api/v1/namespaces", content)
        installed = Release(server, namespace, chart).install(values)
        if helm == 3:
            installed.forget_how_it_was_applied()
        return installed

    return made


def replicas(of):
    return of.workload()["spec"]["replicas"]


def assert_refused(of, values, complaint):
    """Asserts that an upgrade is refused, and that no object has changed."""
    before = of.versions()
    for dry_run in ("server", None):
        with pytest.raises(HelmError, match=re.escape(complaint)):
            of.upgrade(values, dry_run)
    assert of.versions() == before
    # Without the cluster, nothing is known of what runs.
    of.upgrade(values, "client")


@KINDS
@HELM
def test_autoscaling_begins_with_the_pods_that_run(release, values, helm):
    made = release(merge(values, SIX), helm)
    scaled = merge(values, SCALED)
    made.upgrade(scaled)
    assert replicas(made) == 6
    made.upgrade(merge(scaled, {"podLabels": {"team": "growth"}}))
    assert replicas(made) == 6, "the field stays where Helm has applied it"
    made.scale(9)
    made.upgrade(merge(scaled, {"podLabels": {"team": "search"}}))
    assert replicas(made) == 9
    made.upgrade(merge(scaled, {"podLabels": {"team": "news"}}))
    assert replicas(made) == 9


def test_volumes_that_cannot_change_are_refused(release):
    made = release(PERSISTENT)
    for changes, complaint in (
        ({"size": "40Gi"}, f"store.size: the volumes of {NAME} have 20Gi"),
        ({"storageClassName": "fast"}, "store.storageClassName"),
        ({"accessModes": ["ReadWriteMany"]}, "store.accessModes"),
    ):
        assert_refused(made, merge(PERSISTENT, {"store": changes}), complaint)
    same = {"size": "20480Mi", "retentionPolicy": {"whenDeleted": "Delete"}}
    made.upgrade(merge(PERSISTENT, {"store": same}))


def test_volumes_have_another_size_after_the_steps_of_the_page(release):
    made = release(PERSISTENT)
    workload = made.workload()
    # As `kubectl delete --cascade=orphan`; there is no garbage collector that would end it.
    made.client.delete(made.path("StatefulSet", NAME), workload["metadata"]["uid"])
    larger = merge(PERSISTENT, {"store": {"size": "40Gi"}, "replicaCount": 4})
    made.upgrade(larger)
    (claim,) = made.workload()["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "40Gi"
    assert replicas(made) == 4


@pytest.mark.parametrize(
    ("before", "after", "old"),
    [
        (MINIMAL, PERSISTENT, f"deployment/{NAME}"),
        (PERSISTENT, MINIMAL, f"statefulset/{NAME}"),
        (MINIMAL, merge(MINIMAL, {"nameOverride": "other"}), f"deployment/{NAME}"),
        (MINIMAL, merge(MINIMAL, {"fullnameOverride": "other"}), f"deployment/{NAME}"),
        (PERSISTENT, merge(PERSISTENT, {"fullnameOverride": "other"}), f"statefulset/{NAME}"),
        (MINIMAL, merge(PERSISTENT, {"nameOverride": "other"}), f"deployment/{NAME}"),
        (merge(MINIMAL, {"replicaCount": 1}), CASES["existing-claim"].values, f"deployment/{NAME}"),
    ],
)
def test_an_outage_is_refused_until_it_is_accepted_by_name(release, before, after, old):
    made = release(before)
    assert_refused(made, after, f"the pods of {old} would be deleted before")
    made.upgrade(merge(after, {"upgrade": {"replace": old}}))
    made.upgrade(after)


def test_the_name_of_another_workload_accepts_nothing(release):
    other = {"upgrade": {"replace": f"statefulset/{NAME}"}}
    assert_refused(release(MINIMAL), merge(PERSISTENT, other), f"upgrade.replace=deployment/{NAME}")


def test_labels_by_which_pods_are_found_cannot_change(release):
    named = merge(MINIMAL, {"fullnameOverride": NAME})
    made = release(named)
    renamed = merge(named, {"nameOverride": "other", "upgrade": {"replace": f"deployment/{NAME}"}})
    assert_refused(made, renamed, f"nameOverride: the labels by which {NAME} finds its pods")


@HELM
def test_pods_that_an_autoscaler_has_added_go_on_when_it_is_turned_off(release, helm):
    made = release(merge(MINIMAL, SCALED), helm)
    made.scale(8)
    assert_refused(made, MINIMAL, "has set 8 pods, which an upgrade does not change to 2")
    made.upgrade(merge(MINIMAL, {"replicaCount": 8}))
    assert replicas(made) == 8


@HELM
def test_pods_that_others_have_added_go_on(release, helm):
    made = release(MINIMAL, helm)
    made.scale(5)
    changed = merge(MINIMAL, {"config": {"log": {"level": "debug"}}})
    assert_refused(made, changed, f"or first kubectl scale --replicas=2 deployment/{NAME}")
    made.scale(2)
    made.upgrade(changed)


def test_another_workload_begins_with_the_pods_of_the_old_one(release):
    scaled = merge(MINIMAL, SCALED)
    made = release(scaled)
    made.scale(7)
    changes = {"store": PERSISTENT["store"], "upgrade": {"replace": f"deployment/{NAME}"}}
    made.upgrade(merge(scaled, changes))
    assert (made.workload()["kind"], replicas(made)) == ("StatefulSet", 7)


# Values whose change is harmless, in two sets that differ from each other and from `minimal`.
HARMLESS = (
    {
        "store": {"type": "ephemeral", "size": "40Gi"},
        "strategy": {"type": "Recreate"},
        "commonLabels": {"team": "growth"},
        "service": {"grpcPort": 9080, "httpPort": 9000, "type": "NodePort", "headless": True},
        "engine": {"nativeSidecar": False},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
        "serviceAccount": {"name": "scores"},
        "networkPolicy": {"enabled": True},
        "oip": {"enabled": True},
        "replicaCount": 5,
    },
    {
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "podLabels": {"tier": "scores"},
        "service": {"grpcPort": 80, "type": "LoadBalancer"},
        "engine": {"enabled": False},
        "onnx": {"enabled": True},
        "podDisruptionBudget": {"enabled": False},
        "serviceAccount": {"create": False},
        "openshift": True,
        "xgboostServing": {"enabled": True},
        "replicaCount": 3,
    },
)


@HELM
def test_other_values_change_in_place(release, helm):
    made = release(MINIMAL, helm)
    before = made.workload()["metadata"]["uid"]
    for changes in (*HARMLESS, {}):
        made.upgrade(merge(MINIMAL, changes))
        assert made.workload()["metadata"]["uid"] == before
        assert replicas(made) == changes.get("replicaCount", 2)


def test_what_is_mutable_in_a_job_changes_in_place(release):
    values = BATCH_CASES["batch-minimal"].values
    made = release(values, chart=BATCH_CHART)
    ((kind, name),) = (place for place in made.objects() if place[0] == "Job")
    job = made.path(kind, name)
    uid = made.client.get(job)["metadata"]["uid"]
    limits = {"maxFailedIndexes": 1, "activeDeadlineSeconds": 600, "ttlSecondsAfterFinished": 60}
    for changes in (limits, {"suspend": True}, {}):
        made.upgrade(merge(values, changes))
        found = made.client.get(job)
        assert found["metadata"]["uid"] == uid
        assert found["spec"]["suspend"] is changes.get("suspend", False)
    made.client.update(job, {"spec": {"suspend": True}})
    made.upgrade(merge(values, {"networkPolicy": {"enabled": True}}))
    assert made.client.get(job)["spec"]["suspend"], "others have suspended it"
