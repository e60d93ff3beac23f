"""The models of the orchestration stage, each built once."""

import pytest

from outrigger_testenv import variants
from outrigger_testenv.everything import INPUTS, LIST_INPUTS, OUTPUTS, WIDE_OUTPUTS, everything
from outrigger_testenv.reference import reference_model


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """The reference model."""
    return reference_model(tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="session")
def kitchen(tmp_path_factory):
    """A model with every kind of feature and output."""
    directory = tmp_path_factory.mktemp("everything")
    return everything(directory, [*OUTPUTS, *WIDE_OUTPUTS], [*INPUTS, *LIST_INPUTS])


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Makes tiny models that give every treatment the same score."""

    def make(score: float):
        return variants.tiny(tmp_path_factory.mktemp("tiny"), score)

    return make


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """Makes a package from a function of `tiny_builder`'s inputs, once for each function."""
    made = {}

    def make(function):
        if function not in made:
            directory = tmp_path_factory.mktemp(function.__name__)
            made[function] = variants.tiny_builder().build(function, directory)
        return made[function]

    return make
