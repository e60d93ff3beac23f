"""`make catboost`: installs the CatBoost that tests need."""

import sys

from outrigger_testenv import pinned
from outrigger_testenv.boosting import CATBOOST


def main() -> int:
    """Returns 0 if it is there, 1 if it cannot be installed."""
    return pinned.fill([CATBOOST])


if __name__ == "__main__":
    sys.exit(main())
