"""`make oip-peers`: installs the servers and clients that the tests of the protocol need."""

import sys

from outrigger_testenv.oip import environments


def main() -> int:
    """Returns 0 if all are there, 1 if one cannot be installed."""
    status = 0
    for name in environments.NAMES:
        try:
            print(f"{name}: {environments.environment(name)}", flush=True)
        except environments.Missing as missing:
            print(f"{name}: {missing}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
