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


def attacker(function: Callable[..., Any], log: Path, **arguments: Any) -> Process:
    """The process, not started, that calls the function. Its log has the result."""
    log.unlink(missing_ok=True)
    module = function.__module__.removeprefix(f"{_PACKAGE}.")
    command = ["nice", "-n", "19", sys.executable, "-m", f"{_PACKAGE}.attacker"]
    command += [module, function.__name__, json.dumps(arguments)]
    return Process(f"attacker {function.__name__}", command, log)


def main() -> int:
    """Calls the function and prints its result."""
    module, function, arguments = sys.argv[1:]
    called = getattr(import_module(f"{_PACKAGE}.{module}"), function)
    print(json.dumps(called(**json.loads(arguments))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
