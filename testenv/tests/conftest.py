"""Quiet TensorFlow, a shared stack, and what several stages use."""

import os
import shutil

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# As many as the engine gets: equal bits need equal threads.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "2")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")

import pytest

from outrigger_testenv import registry
from outrigger_testenv.stack import Stack


def pytest_addoption(parser):
    parser.addoption(
        "--model",
        metavar="DIR",
        help="the model directory that the execution stage validates (default: an example)",
    )


@pytest.fixture(scope="session")
def stack(request):
    """One stack for all tests that leave it as they found it."""
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
    """Makes stacks of a test's own, with changes to the configuration; ends them all."""
    stacks = []

    def make(**arguments):
        stacks.append(Stack(**arguments))
        return stacks[-1].__enter__()

    yield make
    for each in stacks:
        each.close(failed=getattr(request.node, "failed", True))


@pytest.fixture
def needs_registry():
    """Skips where docker-registry could not be installed."""
    if not registry.available():
        pytest.skip("docker-registry is not installed, see scripts/install-test-tools")


@pytest.fixture
def needs_image_tools(needs_registry):
    """Skips where skopeo or umoci could not be installed."""
    for tool in ("skopeo", "umoci"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed, see scripts/install-test-tools")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Remembers on the test whether its body failed: stacks then keep their logs."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.failed = report.failed


@pytest.fixture(scope="session")
def serving(stack, client):
    """Pushes a package under a name, waits until it is served, returns its digest."""

    def push(package, model, tag="latest"):
        digest = stack.push(package, model, tag)
        client.load(model, tag=tag)
        client.wait_until_serving(model, digest, tag)
        return digest

    return push
