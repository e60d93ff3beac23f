"""The figures of the Open Inference Protocol: their turns and values."""

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from outrigger_testenv.bench.figure import FULL, QUICK, Effort
from outrigger_testenv.bench.generator import Report, Side
from outrigger_testenv.bench.oip import front, identity, served
from outrigger_testenv.bench.oip.figures import OIP_FIGURES


@pytest.fixture
def asked(monkeypatch):
    """Replaces the load generator by one that reports a throughput for each side; returns the sides
    in the order in which they were asked.
    """
    sides = []

    def run(side, load, effort):
        assert load == front.LOAD
        sides.append(side.name)
        return Report(side.name, [], {"throughput": {"engine": 100.0}.get(side.name, 65.0)})

    monkeypatch.setattr(front, "run", run)
    return sides


def stack():
    """A stack that is not started, as far as its addresses and processes are read."""
    process = SimpleNamespace(pid=os.getpid())
    serve = SimpleNamespace(config={"server": {"oip": "127.0.0.1:8001"}}, process=process)
    engine = SimpleNamespace(endpoint="unix:/engine.sock", process=process)
    model = SimpleNamespace(versions=[SimpleNamespace(servable="reference", servable_version=7)])
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


def test_a_servers_processes_are_its_own_and_those_it_has_started():
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as first:
        peer = SimpleNamespace(process=first)
        try:
            while len(found := served.peer_processes("triton", peer)) < 2:
                pass
            assert found["triton"] == first.pid
            parent = Path(f"/proc/{found['triton-1']}/stat").read_text().split()[3]
            assert int(parent) == first.pid
        finally:
            os.kill(found["triton-1"], signal.SIGKILL)


def test_another_server_is_compared_in_throughput_and_cpu(monkeypatch):
    def report(side, throughput, **processes):
        seconds = {"client": 1.0, **processes}
        return Report(side, [], {"throughput": throughput, "cpu_seconds_per_request": seconds})

    turn = {
        identity.OUTRIGGER: report("Outrigger", 300.0, onnx=0.001, **{"control-plane": 0.002}),
        "Triton": report("Triton", 200.0, triton=0.002, **{"triton-1": 0.004}),
    }
    monkeypatch.setattr(identity, "_reports", lambda effort: [turn])
    assert identity.throughput("Triton", None, QUICK).samples == [1.5]
    assert identity.cpu("Triton", None, QUICK).samples == [0.5]


def test_all_figures_fit_into_their_time():
    names = [figure.name for figure in OIP_FIGURES]
    assert {"oip-front-ratio", "oip-identity-mlserver-cpu", "remote-ratio"} <= {*names}
    assert sum(figure.seconds(FULL) for figure in OIP_FIGURES) < 140
