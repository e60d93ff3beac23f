"""Well-formed calls through the clients of other projects, each in a process of its own: the
messages of two of them cannot be in one.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from outrigger_testenv.oip import environments

_PROGRAMS = Path(__file__).parent / "programs"
# Longest run of a client's program, in seconds.
_LONGEST = 300.0

CLIENTS = {
    environments.TRITONCLIENT: _PROGRAMS / "triton_client.py",
    environments.KSERVE: _PROGRAMS / "kserve_client.py",
}


def results(client: str, rest: str, grpc: str) -> Mapping[str, str]:
    """The results of a client, by the names of its calls. Raises environments.Missing if it is not
    installed, and RuntimeError if it ends early.
    """
    command = [environments.installed(client), CLIENTS[client], rest, grpc]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"{client} ended with {done.returncode}: {done.stderr[-500:]}")
    return json.loads(lines[-1])
