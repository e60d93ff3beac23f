"""Runs of the load generator and cargo, and of figures one by one."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from outrigger_testenv import browser
from outrigger_testenv.bench import __main__ as command
from outrigger_testenv.bench import before, page, validation
from outrigger_testenv.bench.allocations import count
from outrigger_testenv.bench.before import total
from outrigger_testenv.bench.canary import value
from outrigger_testenv.bench.figure import QUICK, Failed, Figure, Measurement, at_least
from outrigger_testenv.bench.generator import (
    CLOSED_LOOP,
    FRAME,
    Side,
    compare,
    execute,
    find_rate,
    rate,
    run,
)
from outrigger_testenv.bench.machine import cpu_model
from outrigger_testenv.bench.programs import Program, executables
from outrigger_testenv.bench.setup import Setup, through
from outrigger_testenv.bench.system_calls import calls

SIDE = Side("engine", ["--direct", "unix:/engine.sock"], {"engine": 7})

# The output of `outrigger bench -o json`, reduced to the keys that are read.
REPORT = {
    "requests": 1000,
    "throughput": 250.0,
    "errors": {},
    "latency_ms": {"p50": 1.0, "p99": 2.5},
    "cpu_seconds_per_request": {"client": 0.001, "engine": 0.0002, "control-plane": 0.0001},
}


@pytest.fixture
def generator(tmp_path, monkeypatch):
    """Replaces outrigger by a script; returns the arguments of its runs."""
    calls = tmp_path / "calls"

    def install(answer, code=0, complaint=""):
        program = tmp_path / "outrigger"
        program.write_text(
            f"#!{sys.executable}\n"
            "import json, sys\n"
            f"open({str(calls)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
            f"print({answer!r}, end='')\n"
            f"print({complaint!r}, file=sys.stderr)\n"
            f"sys.exit({code})\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("OUTRIGGER_BIN", str(program))
        return lambda: [json.loads(line) for line in calls.read_text().splitlines()]

    return install


def test_a_run_gets_its_side_its_load_and_the_processes_to_measure(generator):
    calls = generator(json.dumps(REPORT))
    run(SIDE, rate(800), QUICK)
    (arguments,) = calls()
    assert arguments[:3] == ["bench", "--direct", "unix:/engine.sock"]
    assert " --rate 800 " in " ".join(arguments)
    assert " --warmup 0.5s --duration 1s --pid engine=7 " in " ".join(arguments)


def test_loads_are_arguments():
    assert rate(3000.5) == ("--rate", "3000.5")
    assert CLOSED_LOOP[0] == "--max"
    assert find_rate(100, 4) == ("--find-rate", "--p99", "100ms", "--step", "4s")


def test_a_report_is_read(generator):
    generator(json.dumps(REPORT))
    report = run(SIDE, CLOSED_LOOP, QUICK)
    assert (report.throughput, report.p99) == (250.0, 2.5)
    assert report.cpu("engine", "control-plane") == pytest.approx(0.0003)
    assert report.raw()["side"] == "engine"
    assert report.raw()["latency_ms"] == REPORT["latency_ms"]


def test_a_rate_is_held_for_longer_than_usual(generator):
    calls = generator(json.dumps({**REPORT, "offered_rate": 4100.5}))
    assert run(SIDE, find_rate(100, 1), QUICK, 60).offered_rate == 4100.5
    assert "--duration 60s" in " ".join(calls()[0])


def test_requests_that_fail_fail_the_figure_and_say_why(generator):
    report = json.dumps({**REPORT, "errors": {"OVERLOADED": 3}})
    generator(report, code=1, complaint="3 of 1000 requests failed")
    with pytest.raises(Failed, match=r"engine: 3 of 1000 requests failed \(3 OVERLOADED\)"):
        run(SIDE, CLOSED_LOOP, QUICK)


def test_requests_of_a_crowd_may_fail(generator):
    generator(json.dumps({**REPORT, "errors": {"OVERLOADED": 3}}), code=1, complaint="failed")
    command = [os.environ["OUTRIGGER_BIN"], "bench"]
    report = execute("crowd", command, may_fail=True)
    assert (report.failed, report.errors) == (3, "3 OVERLOADED")


def test_a_crowd_that_could_not_begin_fails(generator):
    generator("", code=1, complaint="cannot connect")
    with pytest.raises(Failed, match="crowd: cannot connect"):
        execute("crowd", [os.environ["OUTRIGGER_BIN"], "bench"], may_fail=True)


def test_figures_without_a_client_in_their_names_are_of_one_frame():
    process = SimpleNamespace(pid=1)
    serve = SimpleNamespace(target="127.0.0.1:9000", process=process)
    stack = SimpleNamespace(serve=serve, engine=SimpleNamespace(process=process))
    package = SimpleNamespace(directory=Path("/package"))
    assert "--frame-size 1048576" in " ".join(through(stack, package, "kv").arguments)
    assert "--frame-size 16384" in " ".join(through(stack, package, "kv", FRAME).arguments)


def test_a_generator_that_could_not_begin_fails_with_its_message(generator):
    generator("", code=1, complaint="cannot connect")
    with pytest.raises(Failed, match="engine: cannot connect"):
        run(SIDE, CLOSED_LOOP, QUICK)


def test_both_sides_of_a_comparison_run_by_turns(generator):
    calls = generator(json.dumps(REPORT))
    other = Side("proxy", ["--direct", "127.0.0.1:1"], {})
    measured = compare(SIDE, other, CLOSED_LOOP, QUICK, lambda one, two: one.p99 / two.p99)
    assert measured.samples == [1.0] * QUICK.repeats
    assert [each["side"] for each in measured.runs[:4]] == ["engine", "proxy"] * 2
    addressed = [arguments[2] for arguments in calls()]
    assert addressed[:4] == ["unix:/engine.sock", "127.0.0.1:1", "127.0.0.1:1", "unix:/engine.sock"]


def test_a_count_is_found_behind_the_test_runners_output():
    output = (
        "running 1 test\ntest a_prediction ... bench path-allocations 72 allocations\n"
        "bench path-allocations-kv 83 allocations\nok\n"
    )
    assert count("path-allocations", output) == 72
    assert count("path-allocations-kv", output) == 83
    with pytest.raises(Failed, match="no path-other"):
        count("path-other", output)


def test_system_calls_are_the_total_of_straces_table():
    table = (
        "% time     seconds  usecs/call     calls    errors syscall\n"
        "------ ----------- ----------- --------- --------- ----------------\n"
        " 60.00    0.006000           2      3000        12 recvfrom\n"
        " 40.00    0.004000           1      4090           sendto\n"
        "------ ----------- ----------- --------- --------- ----------------\n"
        "100.00    0.010000           1      7090{errors} total\n"
    )
    assert calls(table.format(errors="        12")) == 7090
    assert calls(table.format(errors="          ")) == 7090
    with pytest.raises(Failed, match="no total"):
        calls("strace: Process 7 detached\n")


def test_instructions_are_the_total_of_callgrinds_file():
    assert total("events: Ir\nsummary: 12345678\n\nfn=(0)\n") == 12345678
    with pytest.raises(Failed, match="no total"):
        total("events: Ir\n")


def test_without_a_commit_before_there_is_nothing_to_compare_with():
    with Setup({}) as setup, pytest.raises(Failed, match="BEFORE=commit"):
        before.p99(setup, QUICK)


def test_a_value_is_found_among_the_lines_of_a_benchmark():
    output = (
        "bench canary-nan-median 347.000 requests\nbench canary-nan-median-other 1.500 requests\n"
    )
    assert value("canary-nan-median", output) == 347
    with pytest.raises(Failed, match=r"no canary-nan$"):
        value("canary-nan", output)


def test_cargo_says_where_programs_are():
    def artifact(package, kind, name, executable):
        target = {"kind": [kind], "name": name}
        identity = f"path+file:///crates/{package}#outrigger-{package}@0.1.0"
        return json.dumps(
            {
                "reason": "compiler-artifact",
                "package_id": identity,
                "target": target,
                "executable": executable,
            }
        )

    messages = [
        artifact("server", "lib", "outrigger_server", None),
        artifact("server", "test", "allocations", "/deps/allocations-1"),
        artifact("features", "test", "allocations", "/deps/allocations-2"),
        '{"reason":"build-finished","success":true}',
        "not a message",
    ]
    assert executables(messages) == {
        Program("outrigger-server", "test", "allocations"): Path("/deps/allocations-1"),
        Program("outrigger-features", "test", "allocations"): Path("/deps/allocations-2"),
    }


def test_the_cpu_is_named_where_the_system_names_it():
    assert cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n") == "AMD EPYC"
    assert cpu_model("processor\t: 0\n")


@pytest.fixture
def no_circumstances(monkeypatch):
    """Replaces the functions that need git and the release binary."""
    monkeypatch.setattr(command, "commit", lambda: {})
    monkeypatch.setattr(command, "machine", lambda: {})


def figures(*measures):
    return [
        Figure(f"figure-{at}", "made up", "x", measure, at_least(2), lambda _: 1.0)
        for at, measure in enumerate(measures)
    ]


def test_a_missed_target_is_reported_and_no_failure(tmp_path, capsys, no_circumstances):
    missed = figures(lambda *_: Measurement([1.0]))
    assert command.measure_all(missed, None, QUICK, tmp_path, strict=True) == 1
    assert command.measure_all(missed, None, QUICK, tmp_path) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "bench figure-0 1.00 x"
    assert printed.err.splitlines()[-1] == "bench figure-0 1.00 x (target >= 2: missed)"


def test_a_figure_that_fails_does_not_take_the_others_with_it(tmp_path, capsys, no_circumstances):
    def fails(*_):
        raise Failed("engine: no")

    both = figures(fails, lambda *_: Measurement([3.0]))
    both[0].file(tmp_path).write_text("of an earlier run")
    assert command.measure_all(both, None, QUICK, tmp_path) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "bench figure-1 3.00 x"
    assert "figure-0 failed: engine: no" in printed.err.splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["figure-1.json"]


def test_a_figure_without_its_program_is_skipped_and_no_failure(
    tmp_path, capsys, no_circumstances, monkeypatch
):
    monkeypatch.setattr(browser, "available", lambda: False)
    both = figures(page.first_paint, lambda *_: Measurement([3.0]))
    assert command.measure_all(both, None, QUICK, tmp_path) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "bench figure-1 3.00 x"
    assert "figure-0 skipped: chromium is not installed" in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["figure-1.json"]


def test_an_unknown_figure_is_a_usage_error(tmp_path, capsys):
    assert command.main(["--only", "nothing", "--output", str(tmp_path)]) == 64
    assert "path-kv-ratio" in capsys.readouterr().err


def test_a_file_to_validate_has_a_row_for_each_treatment_of_each_user(tmp_path):
    file = validation._file(tmp_path, 3)
    rows = pd.read_csv(file)
    assert list(rows["user"]) == [f"user-{user}" for user in range(3) for _ in range(8)]
    assert rows.filter(like="user_feature").drop_duplicates().shape == (3, 4)
    assert rows.filter(like="treatment_feature").drop_duplicates().shape == (8, 20)
