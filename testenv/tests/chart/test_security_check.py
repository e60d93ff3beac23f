"""The check of the restricted standard can fail."""

import copy

import pytest

from outrigger_testenv.chart import security
from outrigger_testenv.chart.cases import CASES


def set_at(pod, path, value):
    *parents, last = path
    for part in parents:
        pod = pod[part]
    pod[last] = value


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (["hostPID"], True, "hostPID"),
        (["volumes", 0], {"name": "host", "hostPath": {"path": "/"}}, "hostPath"),
        (["securityContext", "runAsUser"], 0, "root"),
        (["securityContext", "runAsNonRoot"], False, "runAsNonRoot"),
        (["securityContext", "seccompProfile"], {"type": "Unconfined"}, "seccomp"),
        (["containers", 0, "securityContext", "privileged"], True, "privileges"),
        (["containers", 0, "securityContext", "capabilities"], {"add": ["SYS_ADMIN"]}, "adds"),
        (["initContainers", 0, "securityContext"], {}, "keeps capabilities"),
        (["containers", 0, "ports", 0, "hostPort"], 80, "hostPort"),
    ],
)
def test_what_the_standard_refuses_is_found(path, value, complaint):
    pod = copy.deepcopy(CASES["minimal"].rendered.pod)
    set_at(pod, path, value)
    assert any(complaint in each for each in security.violations(pod))
