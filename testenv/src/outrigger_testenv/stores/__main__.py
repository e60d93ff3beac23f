"""`make object-stores`: installs the stores of objects that tests need."""

import sys

from outrigger_testenv import pinned
from outrigger_testenv.stores.servers import Azurite, Moto


def main() -> int:
    """Returns 0 if all are there, 1 if one cannot be installed."""
    return pinned.fill(store.PINNED for store in (Moto, Azurite))


if __name__ == "__main__":
    sys.exit(main())
