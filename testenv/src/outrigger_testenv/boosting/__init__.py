"""CatBoost, in a directory of the cache: it is too large for the environment of all tests."""

import sys
from pathlib import Path
from types import ModuleType

from outrigger_testenv import pinned
from outrigger_testenv.pinned import Pinned

CATBOOST = Pinned("boosting", Path(__file__).parent / "requirements" / "catboost.txt", "catboost")


def catboost() -> ModuleType:
    """The module, which can be imported everywhere after this call. Skips the test if it cannot be
    had; with CI set, it fails instead.
    """
    pinned.needs(CATBOOST)
    (packages,) = CATBOOST.directory().glob("lib/python*/site-packages")
    if str(packages) not in sys.path:
        sys.path.append(str(packages))
    import catboost

    return catboost
