"""The figures of the Open Inference Protocol: their turns and values."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from outrigger_testenv.bench.figure import FULL, QUICK, Effort
from outrigger_testenv.bench.generator import Report, Side
from outrigger_testenv.bench.oip import front


@pytest.fixture
def asked(monkeypatch):
    """Replaces the load generator by one that reports a throughput for each side; returns the sides
    in the order in which they were asked.
    """
    sides = []

    def run(side, load, effort):
        assert load == front.CLOSED_LOOP
        sides.append(side.name)
        return Report(side.name, [], {"throughput": {"engine": 100.0}.get(side.name, 65.0)})

    monkeypatch.setattr(front, "run", run)
    return sides


def stack():
    """A stack that is not started, as far as its addresses and processes are read."""
    process = SimpleNamespace(pid=os.getpid())
    serve = SimpleNamespace(config={"server": {"oip": "127.0.0.1:8001"}}, process=process)
    engine = SimpleNamespace(endpoint="unix:/engine.sock", process=process)
    model = SimpleNamespace(versions=[SimpleNamespace(servable="reference")])
    client = SimpleNamespace(model=lambda name: model)
    return SimpleNamespace(serve=serve, engine=engine, client=lambda: client)


def test_a_turn_of_several_sides_is_short():
    assert front.turns_of(FULL) == Effort(repeats=3, warmup=0.5, measured=2.0, held=FULL.held)
    assert front.turns_of(QUICK) == QUICK


def test_all_forms_are_measured_in_one_run_by_turns(asked):
    setup = SimpleNamespace(inference=(stack(), SimpleNamespace(directory=Path("/package"))))
    # Measured once and kept, so it must be hashable.
    setup = type("Setup", (), vars(setup))()
    values = {form: front.throughput(form, setup, QUICK) for form in front.FORMS}
    assert all(each.samples == [0.65] * QUICK.repeats for each in values.values())
    assert len(asked) == QUICK.repeats * (1 + len(front.FORMS))
    assert asked[:5] == ["engine", *front.FORMS, front.FORMS[-1]]
    assert len(values[front.JSON].runs) == len(asked)


def test_the_listener_is_called_with_the_tensors_of_the_package(asked, monkeypatch):
    sides = {}
    monkeypatch.setattr(
        front, "by_turns", lambda given, *_: sides.update(given) or [dict.fromkeys(given)]
    )
    setup = type("Setup", (), {"inference": (stack(), SimpleNamespace(directory=Path("/p")))})()
    front._reports(setup, QUICK)
    side = sides[front.BINARY]
    assert isinstance(side, Side)
    assert " ".join(side.arguments) == (
        "--server 127.0.0.1:8001 --model reference --form oip-binary"
        " --frame-size 1048576 --package /p"
    )
