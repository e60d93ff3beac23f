"""The check of the restricted standard reports violations of each of its controls."""

import copy

import pytest

from outrigger_testenv.chart import security
from outrigger_testenv.chart.cases import CASES

POD = ["securityContext"]
OWN = ["containers", 0, "securityContext"]
ENGINE = ["initContainers", 0]
ELSEWHERE = {"host": "elsewhere.example", "port": 80}


def set_at(pod, path, value):
    *parents, last = path
    for part in parents:
        pod = pod[part] if isinstance(part, int) else pod.setdefault(part, {})
    pod[last] = value


def changed(path, value):
    pod = copy.deepcopy(CASES["minimal"].rendered.pod)
    set_at(pod, path, value)
    return pod


# The cases are in the standard's order: baseline, then restricted.
@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ([*POD, "windowsOptions"], {"hostProcess": True}, "pod: hostProcess"),
        ([*OWN, "windowsOptions"], {"hostProcess": True}, "outrigger: hostProcess"),
        (["hostNetwork"], True, "hostNetwork"),
        (["hostPID"], True, "hostPID"),
        (["hostIPC"], True, "hostIPC"),
        ([*OWN, "privileged"], True, "outrigger: is privileged"),
        ([*OWN, "capabilities"], {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, "adds capabilities"),
        (["volumes", 0], {"name": "host", "hostPath": {"path": "/"}}, "hostPath"),
        (["containers", 0, "ports", 0, "hostPort"], 80, "hostPort 80"),
        ([*ENGINE, "ports"], [{"containerPort": 1, "hostPort": 80}], "engine: hostPort 80"),
        (
            ["containers", 0, "livenessProbe"],
            {"httpGet": ELSEWHERE},
            "outrigger: livenessProbe.httpGet.host",
        ),
        (
            ["containers", 0, "readinessProbe"],
            {"tcpSocket": ELSEWHERE},
            "outrigger: readinessProbe.tcpSocket.host",
        ),
        (
            [*ENGINE, "startupProbe"],
            {"httpGet": ELSEWHERE},
            "engine: startupProbe.httpGet.host",
        ),
        ([*ENGINE, "lifecycle", "preStop"], {"httpGet": ELSEWHERE}, "preStop.httpGet.host"),
        ([*ENGINE, "lifecycle", "postStart"], {"tcpSocket": ELSEWHERE}, "postStart.tcpSocket.host"),
        ([*POD, "appArmorProfile"], {"type": "Unconfined"}, "pod: appArmorProfile"),
        ([*OWN, "appArmorProfile"], {"type": "Unconfined"}, "outrigger: appArmorProfile"),
        ([*POD, "seLinuxOptions"], {"type": "spc_t"}, "pod: seLinuxOptions.type"),
        ([*OWN, "seLinuxOptions"], {"user": "root"}, "outrigger: seLinuxOptions.user"),
        ([*OWN, "seLinuxOptions"], {"role": "system_r"}, "outrigger: seLinuxOptions.role"),
        ([*OWN, "procMount"], "Unmasked", "outrigger: procMount"),
        ([*POD, "seccompProfile"], {"type": "Unconfined"}, "pod: seccompProfile"),
        ([*OWN, "seccompProfile"], {"type": "Unconfined"}, "outrigger: seccompProfile"),
        ([*POD, "sysctls"], [{"name": "kernel.msgmax", "value": "1"}], "sysctl kernel.msgmax"),
        (["volumes", 0], {"name": "shared", "nfs": {"path": "/"}}, "volume shared is nfs"),
        ([*OWN, "allowPrivilegeEscalation"], True, "outrigger: may gain privileges"),
        ([*OWN], {}, "outrigger: may gain privileges"),
        ([*POD, "runAsNonRoot"], False, "outrigger: runAsNonRoot"),
        ([*OWN, "runAsNonRoot"], False, "outrigger: runAsNonRoot"),
        ([*POD, "runAsUser"], 0, "pod: runs as root"),
        ([*OWN, "runAsUser"], 0, "outrigger: runs as root"),
        ([*POD], {"runAsNonRoot": True}, "outrigger: no seccompProfile"),
        ([*ENGINE, "securityContext"], {}, "engine: keeps capabilities"),
    ],
)
def test_violations_of_the_standard_are_reported(path, value, complaint):
    assert any(complaint in each for each in security.violations(changed(path, value)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ([*OWN, "capabilities"], {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
        (["containers", 0, "ports", 0, "hostPort"], 0),
        (["containers", 0, "livenessProbe"], {"httpGet": {"host": "", "port": 80}}),
        ([*POD, "appArmorProfile"], {"type": "Localhost"}),
        ([*OWN, "seLinuxOptions"], {"type": "container_t", "level": "s0:c1"}),
        ([*OWN, "procMount"], "Default"),
        ([*POD, "sysctls"], [{"name": "net.ipv4.tcp_rmem", "value": "4096 87380 16777216"}]),
        ([*OWN, "seccompProfile"], {"type": "Localhost"}),
        ([*OWN, "runAsNonRoot"], True),
    ],
)
def test_allowed_settings_are_not_reported(path, value):
    assert security.violations(changed(path, value)) == []


@pytest.mark.parametrize(
    ("profile", "findings"), [("unconfined", 1), ("runtime/default", 0), ("localhost/ours", 0)]
)
def test_apparmor_as_an_annotation(profile, findings):
    annotations = {f"{security.APPARMOR_ANNOTATION}engine": profile, "other": "unconfined"}
    pod = CASES["minimal"].rendered.pod
    assert len(security.violations(pod, annotations)) == findings
