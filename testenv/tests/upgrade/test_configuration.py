"""A configuration and an environment of the previous version work unchanged."""

import re

import pytest

from outrigger_testenv.upgrade.configuration import CASES, differences, dumped


@pytest.fixture(params=list(CASES))
def case(request):
    """One after the other."""
    return CASES[request.param]


def test_the_configuration_is_valid_and_no_variable_is_ignored(case):
    done = case.serve("--check-config")
    assert (done.returncode, done.stdout.strip()) == (0, "the configuration is valid"), done.stderr
    assert done.stderr == ""


def test_every_value_in_force_is_as_before(case):
    done = case.serve("--dump-config")
    assert done.returncode == 0, done.stderr
    assert list(differences(dumped(case.dumped.read_text()), dumped(done.stdout))) == []


@pytest.mark.parametrize(("name", "origin"), [("file", "file"), ("environment", "environment")])
def test_the_fixtures_leave_no_key_at_its_default(name, origin):
    lines = CASES[name].dumped.read_text().splitlines()
    values = [line for line in lines if not re.fullmatch(r"\w+:", line)]
    assert len(values) > 50
    assert [line for line in values if f"  # {origin}" not in line] == []


def test_a_value_that_is_lost_or_changed_is_found():
    before = {"server": {"grpc": "a", "models": [{"name": "churn"}]}, "log": {"level": "info"}}
    now = {"server": {"grpc": "b", "models": [{"name": "churn", "tag": None}]}}
    assert list(differences(before, now)) == [
        "server.grpc: 'a' became 'b'",
        "log: {'level': 'info'} became None",
    ]
