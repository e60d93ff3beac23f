"""Environments of Python of other servers and clients of the protocol.

Each has pinned versions of its own, since their requirements conflict, and is kept in the cache
outside the repository.
"""

from pathlib import Path

from outrigger_testenv import pinned
from outrigger_testenv.pinned import Missing, Pinned

__all__ = ["NAMES", "Missing", "environment", "installed", "needs", "pins", "python"]

TRITON, MLSERVER, KSERVE, TRITONCLIENT = NAMES = ("triton", "mlserver", "kserve", "tritonclient")
RAY, SCRIPT = MEASURED = ("ray", "script")
"""Further environments, which only figures need: Ray Data, and Triton's client with pyarrow."""

_REQUIREMENTS = Path(__file__).parent / "requirements"


def pins(name: str) -> Pinned:
    """The packages of an environment."""
    return Pinned("oip", _requirements(name), "oip-peers")


def environment(name: str) -> Path:
    """The directory of an environment, made if it is not there yet. Raises Missing."""
    return pins(name).directory()


def python(name: str) -> Path:
    """The interpreter of an environment. Raises Missing."""
    return pins(name).python()


def installed(name: str) -> Path:
    """The interpreter of an environment that is in the cache. Raises Missing if it is not."""
    return pins(name).installed_python()


def needs(*names: str) -> None:
    """Skips the test if an environment cannot be had. With CI set, it fails instead."""
    pinned.needs(*map(pins, names))


def _requirements(name: str) -> Path:
    return _REQUIREMENTS / f"{name}.txt"
