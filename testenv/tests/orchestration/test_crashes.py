"""A model that ends the engine, beside nine that do not."""

import contextlib
import json

import pandas as pd
import pytest

from outrigger_testenv import killers, variants
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.load import Load
from outrigger_testenv.supervisor import Supervisor

KILLER = "killer"
OFFERS = pd.DataFrame({"price": [1.0, 2.0]})
NEIGHBOURS = [f"neighbour-{score}" for score in range(1, 10)]
QUARANTINED = "MODEL_QUARANTINED"
# Other tests run beside these. The attacks hold 15 s.
DEADLINE = 30.0
TIMEOUT = 120.0


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory):
    """Nine models, each with a score of its own."""
    return variants.versions(tmp_path_factory.mktemp("neighbours"), range(1, 10))


@pytest.fixture(scope="module")
def killer(tmp_path_factory):
    """Makes the model that ends the engine, once for each way."""
    made = {}

    def make(way):
        if way not in made:
            made[way] = way(tmp_path_factory.mktemp(way.__name__))
        return made[way]

    return make


@pytest.fixture
def stack(own_stack, neighbours):
    """A stack that serves the neighbours."""
    stack = own_stack(models=[{"name": name, "preload": True} for name in NEIGHBOURS], start=False)
    if stack.registry:
        stack.registry.start()
    stack.digests = {
        name: stack.push(package, name)
        for name, package in zip(NEIGHBOURS, neighbours, strict=True)
    }
    stack.engine.start()
    stack.serve.start()
    return stack


def probes():
    """A request for each neighbour."""
    for name in NEIGHBOURS:
        message = request({"age": 30.0}, OFFERS)
        message.model.CopyFrom(selector(name))
        yield message


@contextlib.contextmanager
def under_load(stack, directory):
    """Requests to all neighbours with a deadline, of which none may fail."""
    expected = {stack.digests[name]: float(name.split("-")[1]) for name in NEIGHBOURS}
    load = Load(stack.serve.target, probes(), directory, 4, expected, deadline=DEADLINE)
    with load:
        for digest in expected:
            load.wait_for(digest)
        yield load
        before = load.answered
        load.wait_until(before + 2000)
    report = load.stop()
    assert report.failed == 0, report.first_errors
    assert report.wrong == 0
    print(f"\n  {report}")


def call(stack, age, tag=None):
    """The reason for which a prediction fails; empty if it does not."""
    users = pd.DataFrame({"age": [age]})
    try:
        stack.client().predict(KILLER, users, OFFERS, tag=tag, timeout=DEADLINE)
    except OutriggerError as error:
        return error.reason
    return ""


def until(stack, condition):
    stack.serve.process.wait_until(condition, timeout=TIMEOUT)


def why(stack):
    return stack.serve.run("models", "why", KILLER).stdout


def canary_status(stack):
    return json.loads(stack.serve.run("canary", "status", KILLER, "-o", "json").stdout)


def is_quarantined(stack):
    return stack.serve.metrics()["outrigger_models_quarantined"] == 1


@pytest.mark.parametrize("way", [killers.at_load, killers.at_its_first_run])
def test_a_model_that_ends_the_engine_as_it_comes_up_is_not_loaded_a_third_time(
    stack, killer, tmp_path, way
):
    stack.push(killer(way), KILLER)
    with Supervisor(stack.engine) as supervisor, under_load(stack, tmp_path):
        # The request asks for the model, and fails when it is in quarantine.
        until(stack, lambda: call(stack, 30.0) == QUARANTINED)
        assert is_quarantined(stack)
    assert supervisor.crashes == 2
    assert QUARANTINED in why(stack)


def test_a_model_that_ends_the_engine_at_a_call_is_in_quarantine_after_four(
    stack, killer, tmp_path
):
    stack.push(killer(killers.at_a_call), KILLER)
    with Supervisor(stack.engine) as supervisor, under_load(stack, tmp_path):
        until(stack, lambda: call(stack, 30.0) == "")
        until(stack, lambda: call(stack, killers.AGE) == QUARANTINED)
    assert supervisor.crashes <= 4
    assert "during its calls" in why(stack)


def test_a_quarantine_outlives_both_processes_and_ends_when_an_operator_loads_the_model(
    stack, killer, tiny
):
    digest = stack.push(killer(killers.at_load), KILLER)
    with Supervisor(stack.engine) as supervisor:
        until(stack, lambda: call(stack, 30.0) == QUARANTINED)
        stack.serve.process.kill()
        stack.engine.process.kill()
        stack.serve.start()
        before = supervisor.crashes
        assert call(stack, 30.0) == QUARANTINED
        assert is_quarantined(stack)
        assert supervisor.crashes == before
        stack.serve.run("models", "load", KILLER, "--timeout", "1s")
        until(stack, lambda: supervisor.crashes > before)
        # Another digest under the tag is not in quarantine.
        assert stack.push(tiny(7), KILLER) != digest
        until(stack, lambda: call(stack, 30.0) == "")


def test_a_canary_that_ends_the_engine_is_rolled_back(needs_registry, own_stack, killer, package):
    stack = own_stack()
    live = stack.push(package(variants.good), KILLER)
    stack.client().load(KILLER)
    canary = stack.push(killer(killers.at_a_call), KILLER, "latest_canary")

    def decided():
        found = canary_status(stack)
        phases = {each["phase"] for each in found.get("canaries", [])}
        if phases & {"PHASE_WARMING_UP", "PHASE_SPLIT"}:
            call(stack, killers.AGE, "latest_canary")
        return found.get("decisions")

    with Supervisor(stack.engine) as supervisor:
        until(stack, decided)
        assert call(stack, killers.AGE) == ""
    assert 1 <= supervisor.crashes <= 4
    [decision] = canary_status(stack)["decisions"]
    assert (decision["outcome"], decision["canary_digest"]) == ("OUTCOME_ROLLED_BACK", canary)
    assert QUARANTINED in decision["reason"]
    assert stack.registry.digest(f"models/{KILLER}", "latest") == live


def test_two_restarts_of_the_engine_under_load_put_no_model_in_quarantine(stack, tmp_path):
    with Supervisor(stack.engine) as supervisor, under_load(stack, tmp_path) as load:
        for restart in (1, 2):
            load.wait_until(load.answered + 1000)
            stack.engine.process.kill()
            until(stack, lambda restart=restart: supervisor.crashes == restart)
    assert not is_quarantined(stack)
