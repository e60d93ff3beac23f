"""Runs commands as the user, and with the rights, of a container's security context."""

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from outrigger_testenv.binary import outrigger
from outrigger_testenv.chart.render import Object
from outrigger_testenv.stack import library

# An arbitrary user id, in the range that OpenShift assigns to a namespace.
ARBITRARY_USER = 1000680000


def as_rendered(pod: Object, container: Object) -> list[str]:
    """The command prefix that sets user and rights; empty where users cannot be changed.

    `pod` and `container` are the security contexts. A pod that names no user gets an
    arbitrary one.
    """
    if container["capabilities"]["drop"] != ["ALL"] or container["allowPrivilegeEscalation"]:
        raise ValueError(f"only containers without rights can be run: {container}")
    if not may_change_user():
        return []
    user, group = pod.get("runAsUser", ARBITRARY_USER), pod.get("runAsGroup", 0)
    return _without_rights(user, group, pod.get("fsGroup"))


def isolated(
    contexts: tuple[Object, Object], variables: Mapping[str, str], command: Sequence[str]
) -> list[str]:
    """A container's command with the user, the rights and the environment of the container, in the
    image's working directory. `contexts` are the security contexts of pod and container.
    """
    environment = (f"{name}={value}" for name, value in variables.items())
    path = f"PATH={os.environ['PATH']}"
    return [*as_rendered(*contexts), "env", "--chdir=/", "-i", path, *environment, *command]


@functools.cache
def may_change_user() -> bool:
    """Whether processes can be started as another user who can read the binaries."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    needed = [outrigger(), *library().values()]
    command = [*_without_rights(ARBITRARY_USER, 0, None), "ls", *map(str, needed)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _without_rights(user: int, group: int, further: int | None) -> list[str]:
    return [
        *("setpriv", f"--reuid={user}", f"--regid={group}"),
        "--clear-groups" if further is None else f"--groups={further}",
        *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"),
        *("--pdeathsig", "KILL", "--"),
    ]
