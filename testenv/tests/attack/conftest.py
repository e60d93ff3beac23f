"""The attacked processes, shared by all cases."""

import pytest

from outrigger_testenv.attack.scene import Scene
from outrigger_testenv.tools import needs


@pytest.fixture(scope="session")
def scene():
    """The stack with its good models, the lying registry and the program that discards."""
    needs("docker-registry")
    with Scene() as running:
        yield running
