"""A process that attacks, at the lowest priority.

`python -m outrigger_testenv.attack.attacker MODULE FUNCTION ARGUMENTS` calls the function of a
module of this package with arguments in JSON, and prints its result in JSON.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from outrigger_testenv.processes import Process

_PACKAGE = __package__
_LOWEST = "19"
# The kernel may share processors between sessions first, and only then between the processes of a
# session by their own nice values: sched(7), "The autogroup feature".
_AUTOGROUP = Path("/proc/self/autogroup")


def attacker(function: Callable[..., Any], log: Path, **arguments: Any) -> Process:
    """The process, not started, that calls the function. Its log has the result."""
    log.unlink(missing_ok=True)
    module = function.__module__.removeprefix(f"{_PACKAGE}.")
    command = ["nice", "-n", _LOWEST, sys.executable, "-m", f"{_PACKAGE}.attacker"]
    command += [module, function.__name__, json.dumps(arguments)]
    return Process(f"attacker {function.__name__}", command, log)


def main() -> int:
    """Calls the function and prints its result."""
    if _AUTOGROUP.exists():
        _AUTOGROUP.write_text(_LOWEST)
    module, function, arguments = sys.argv[1:]
    called = getattr(import_module(f"{_PACKAGE}.{module}"), function)
    print(json.dumps(called(**json.loads(arguments))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
