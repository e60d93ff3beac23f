"""`make oip-peers`: installs the servers and clients that the tests of the protocol need."""

import sys

from outrigger_testenv import pinned
from outrigger_testenv.oip import environments


def main() -> int:
    """Returns 0 if all are there, 1 if one cannot be installed."""
    return pinned.fill(map(environments.pins, environments.NAMES))


if __name__ == "__main__":
    sys.exit(main())
