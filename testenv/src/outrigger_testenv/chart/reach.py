"""The parts of a pod's other processes that a process in one of its containers reaches."""

import re

from outrigger_testenv.chart.pod import LocalPod

# Prints, of each process in sight, directories with secrets, settings, and the command line if the
# process can be signalled.
_SCRIPT = r"""
for each in /proc/[0-9]*; do
  ls -d $each/root/run/outrigger-token $each/root/etc/outrigger/tokens
  tr '\0' '\n' < $each/environ | grep ^OUTRIGGER_AUTH_
  kill -0 ${each#/proc/} && tr '\0' ' ' < $each/cmdline && echo
done 2> /dev/null
"""
_REACHED = re.compile(r"/proc/\d+/root/|OUTRIGGER_AUTH_|.* serve ")


def reached(pod: LocalPod) -> list[str]:
    """The directories, settings and command lines of the control plane that are within reach of a
    process in the engine's container. Raises LookupError if not even the engine's own are.
    """
    found = pod.inside("engine", "sh", "-c", _SCRIPT).stdout.splitlines()
    if not any("--grpc_socket_path" in each for each in found):
        raise LookupError(f"the engine's process is out of reach: {found}")
    return [each for each in found if _REACHED.match(each)]
