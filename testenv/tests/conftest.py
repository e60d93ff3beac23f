"""Shared fixtures: quiet TensorFlow, a shared stack, and models that are built once."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The number of the engine's threads: scores are bit-equal only with equal threads.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "2")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")

import pytest

from outrigger_testenv import variants
from outrigger_testenv.everything import INPUTS, LIST_INPUTS, OUTPUTS, WIDE_OUTPUTS, everything
from outrigger_testenv.reference import reference_model
from outrigger_testenv.stack import Stack
from outrigger_testenv.tools import needs


def pytest_addoption(parser):
    parser.addoption(
        "--model",
        metavar="DIR",
        help="the model directory that the execution stage validates (default: an example)",
    )
    parser.addoption(
        "--rows",
        metavar="FILE",
        help="a file of rows that the execution stage scores with the model directory",
    )


def pytest_runtest_setup(item):
    """Checks that the programs a test needs are installed, before its fixtures are made."""
    for mark in item.iter_markers("needs"):
        needs(*mark.args)


@pytest.fixture(scope="session")
def stack(request):
    """One stack, shared by all tests that leave it unchanged."""
    with Stack() as running:
        failures = request.session.testsfailed
        yield running
        running.check()
        running.keep = request.session.testsfailed > failures


@pytest.fixture(scope="session")
def client(stack):
    """A connection to the shared stack."""
    return stack.client()


@pytest.fixture
def own_stack(request):
    """Makes stacks for one test, with changes to the configuration; closes them all afterwards."""
    stacks = []

    def make(**arguments):
        stacks.append(Stack(**arguments))
        return stacks[-1].__enter__()

    yield make
    for each in stacks:
        each.close(failed=getattr(request.node, "failed", True))


@pytest.fixture
def needs_registry():
    """For tests that need the real registry."""
    needs("docker-registry")


@pytest.fixture
def needs_image_tools(needs_registry):
    """For tests with other tools for images."""
    needs("skopeo", "umoci")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Records on the test whether its body failed, so that stacks keep their logs."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.failed = report.failed


@pytest.fixture(scope="session")
def serving(stack, client):
    """Pushes a package under a name, waits until it is served, and returns its digest."""

    def push(package, model, tag="latest"):
        digest = stack.push(package, model, tag)
        client.load(model, tag=tag)
        client.wait_until_serving(model, digest, tag)
        return digest

    return push


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
