"""Models of the orchestration stage, built once."""

import pytest

from outrigger_testenv import variants
from outrigger_testenv.everything import everything
from outrigger_testenv.reference import reference_model


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """The reference model."""
    return reference_model(tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="session")
def kitchen(tmp_path_factory):
    """A model with every kind of feature and output."""
    return everything(tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Makes tiny models that score everything alike."""

    def make(score: float):
        return variants.tiny(tmp_path_factory.mktemp("tiny"), score)

    return make
