"""Figures of crowds, the tables of the documentation and their plot."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from outrigger_testenv.bench import tables, traffic, training
from outrigger_testenv.bench.client_figures import CLIENT_COMPARISONS, CLIENT_FIGURES
from outrigger_testenv.bench.clients import BENCH, GO, ONE, Call
from outrigger_testenv.bench.figure import QUICK, Effort, Failed, Skipped
from outrigger_testenv.bench.generator import CONTROL_PLANE, FRAME, ONE_FRAME, Report
from outrigger_testenv.bench.plot import Line, Panel, svg
from outrigger_testenv.bench.tables import Cell
from outrigger_testenv.bench.traffic import Crowd, refusal_cpu, unexplained


def report(throughput=100.0, cpu=1e-4, p99=2.0, ok=100, **errors):
    """A report of a load generator, reduced to the keys that are read."""
    content = {
        "throughput": throughput,
        "ok": ok,
        "errors": errors,
        "latency_ms": {"p99": p99} if ok else None,
        "cpu_seconds_per_request": {CONTROL_PLANE: cpu},
    }
    return Report("side", [], content)


def test_a_refusals_cpu_is_what_answers_leave():
    usual = report(cpu=100e-6)
    # 50 answers of 100 us and 150 refusals of 10 us.
    crowd = report(cpu=(50 * 100e-6 + 150 * 10e-6) / 200, ok=50, OVERLOADED=100, DEADLINE=50)
    assert refusal_cpu(usual, crowd) == pytest.approx(0.1)
    assert refusal_cpu(usual, report(ok=50)) == 0


def test_failures_that_the_control_plane_does_not_explain_are_counted():
    assert unexplained({"OVERLOADED": 5, "DEADLINE": 7}) == 0
    assert unexplained({"OVERLOADED": 5, "CLIENT_TIMEOUT": 2, "DEADLINE_EXCEEDED": 1}) == 3
    assert unexplained({"STREAM_RESET": 1}) == 1


def test_a_crowd_is_compared_with_the_usual_callers_turn_by_turn():
    turns = [
        (report(throughput=200, OVERLOADED=1), report(throughput=100, CLIENT_TIMEOUT=3)),
        (report(throughput=100), report(throughput=100)),
    ]
    crowd = Crowd(turns, [512.0, 480.0])
    assert crowd.goodput() == [0.5, 1]
    assert crowd.failed() == [4, 0]
    assert crowd.unexplained() == [3, 0]


def test_a_crowd_is_compared_with_callers_that_got_answers_only():
    crowd = Crowd([(report(throughput=0, ok=0, OVERLOADED=9), report(OVERLOADED=1))], [0])
    for part in (crowd.goodput, crowd.refusal_cpu):
        with pytest.raises(Failed, match="no answers with 512 in flight"):
            part()
    assert crowd.failed() == [10]


class Peaks:
    """Stands for the recorder of peak memory."""

    bytes = 300 << 20

    def __init__(self, process):
        self.process = process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def runs(monkeypatch):
    """Replaces the load generators; returns what each run was asked for."""
    asked = []

    def run(client, target, call, effort, may_fail=False):
        asked.append((client, target.stack, call, may_fail))
        return report(throughput=1000 / call.in_flight, cpu=call.treatments * 1e-6)

    monkeypatch.setattr(traffic, "run", run)
    monkeypatch.setattr(traffic, "Peak", Peaks)
    return asked


class Made(SimpleNamespace):
    """A setup, which is the key of what is measured once."""

    __hash__ = object.__hash__


def setup():
    stacks = {
        name: SimpleNamespace(serve=SimpleNamespace(process=SimpleNamespace(running=True)))
        for name in ("stack", "bounded", "now", "before")
    }
    both = (stacks.pop("now"), stacks.pop("before"))
    return Made(package=None, messages=None, both=both, **stacks)


def test_one_run_of_a_crowd_gives_all_its_figures(runs):
    made = setup()
    scene = traffic.Scene("kv", 64, 0.2)
    goodput = traffic.crowd("goodput", scene, made, QUICK)
    assert goodput.samples == [pytest.approx(512 / 4096)] * 3
    assert traffic.crowd("resident", scene, made, QUICK).samples == [300] * 3
    assert traffic.crowd("failed", scene, made, QUICK).samples == [0] * 3
    assert len(runs) == 6
    client, stack, call, may_fail = runs[1]
    assert (client, stack, may_fail) == (BENCH, made.bounded, True)
    assert call == Call("kv", connections=64, in_flight=4096, timeout=0.2)
    assert runs[0][2] == replace(call, in_flight=512, timeout=10)


def test_a_client_is_compared_with_one_frame(runs):
    made = setup()
    measured = traffic.cpu_over_one_frame(GO, "kv", made, QUICK)
    assert measured.samples == [1, 1, 1]
    assert [client for client, *_ in runs[:4]] == [GO, ONE, ONE, GO]
    assert {stack is made.stack for _, stack, *_ in runs} == {True}


def test_large_requests_are_compared_with_usual_ones(runs):
    assert traffic.growth(1000, 5000, setup(), QUICK).samples == [5, 5, 5]


def test_a_comparison_runs_both_control_planes_with_the_same_client(runs):
    made = setup()
    assert traffic.throughput_over_before(GO, "kv", made, QUICK).samples == [1, 1, 1]
    assert [stack is made.both[0] for _, stack, *_ in runs[:4]] == [True, False, False, True]
    runs.clear()
    traffic.cpu_over_before(BENCH, "json", made, QUICK)
    assert {(client, call.form) for client, _, call, _ in runs} == {(BENCH, "json")}


def test_an_open_loop_is_twice_the_capacity(runs):
    traffic.open_loop("kv", setup(), QUICK)
    closed, opened = runs[0][2], runs[1][2]
    assert closed == Call("kv", connections=64, in_flight=64, timeout=10)
    assert opened.rate == 2 * 1000 / 64
    # Nothing is saturated before a deadline has passed.
    assert opened.in_flight > opened.rate * 1.2
    assert opened.timeout == 1


def test_a_machine_with_few_descriptors_skips_many_connections(monkeypatch):
    monkeypatch.setattr(traffic.resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(Skipped, match="4096 descriptors"):
        traffic.idlers("failed", setup(), QUICK)


def test_seldom_active_callers_each_send_within_the_run(runs, monkeypatch):
    raised = []
    monkeypatch.setattr(traffic.resource, "getrlimit", lambda _: (1024, 20_000))
    monkeypatch.setattr(traffic.resource, "setrlimit", lambda _, limits: raised.append(limits))
    made = setup()
    assert traffic.idlers("failed", made, QUICK).samples == [0]
    assert traffic.idlers("resident", made, QUICK).samples == [300]
    ((_, _, call, _),) = runs
    assert (call.connections, call.rate) == (8000, 800)
    assert raised == [(8200, 20_000)]


def test_the_figures_have_the_names_of_their_clients_and_loads():
    names = [each.name for each in (*CLIENT_FIGURES, *CLIENT_COMPARISONS)]
    assert len(set(names)) == len(names)
    for name in ("client-go-table-cpu", "client-core-kv-cpu", "kv-5000-cpu", "open-2x-kv"):
        assert name in names
    assert {"client-go-table-ratio", "client-go-kv-cpu-ratio", "json-cpu"} <= set(names)
    assert {"compress-json-gzip-bytes", "compress-table-zstd-cpu"} <= set(names)
    assert "crowd-kv-512-memory" in names and "crowd-table-64-hurried-refusal-cpu" in names


def test_the_profile_is_trained_with_both_sizes_of_frames():
    rounds = list(training.rounds())
    assert rounds.count(("kv", FRAME)) == rounds.count(("kv", ONE_FRAME)) == 1
    assert [frame for form, frame in rounds if form == "json"] == [FRAME]


def cell(**changes):
    usual = Cell("columnar", "grpc-go", 1000, 16, 5312.4, 92.6, 4.56, 0.0)
    return replace(usual, **changes)


CELLS = [
    cell(),
    cell(client="outrigger bench", throughput=8100, cpu_us=58),
    cell(treatments=1, throughput=20_000, cpu_us=9),
    cell(in_flight=512, throughput=4000),
    cell(form="kv", in_flight=4096, throughput=25, cpu_us=1234, failed=0.256),
    cell(form="json", client="Go net/http", throughput=511, cpu_us=3356),
]


def content(cells=CELLS):
    return {
        "commit": {"id": "0123456789abcdef", "modified": False},
        "machine": {"cores": 2, "cpu": "AMD EPYC"},
        "turns": 3,
        "seconds": 4.0,
        "cells": [asdict(each) for each in cells],
    }


def test_a_cell_has_the_medians_of_its_runs():
    runs = [
        report(throughput=100, cpu=1e-5, p99=1),
        report(throughput=300, cpu=3e-5, p99=3, ok=50, OVERLOADED=50),
        report(throughput=200, cpu=2e-5, p99=2),
    ]
    call = Call("kv", 10, in_flight=512)
    assert Cell.of("grpc-go", call, runs) == Cell("kv", "grpc-go", 10, 512, 200, 20, 2, 0)
    nothing = Cell.of("grpc-go", call, [report(throughput=0, ok=0, OVERLOADED=4)])
    assert (nothing.p99_ms, nothing.failed) == (None, 1)
    # No request ended within the measured time.
    stuck = Cell.of("grpc-go", call, [report(throughput=0, cpu=None, ok=0)])
    assert (stuck.cpu_us, str(stuck)) == (None, "0/s")


def test_a_cell_shows_failures_that_matter():
    assert str(cell()) == "5,312/s, 93 us"
    assert str(cell(failed=0.004)) == "5,312/s, 93 us"
    assert str(cell(failed=0.256)) == "5,312/s, 93 us, 26% failed"


def test_a_form_has_a_table_of_clients_by_treatments_and_loads():
    rows = tables.table([each for each in CELLS if each.form == "columnar"])
    assert rows == [
        "| client | 1,000 treatments, 16 in flight, 2 connections"
        " | 1 treatment, 16 in flight, 2 connections"
        " | 1,000 treatments, 512 in flight, 64 connections |",
        "|---|---|---|---|",
        "| grpc-go | 5,312/s, 93 us | 20,000/s, 9 us | 4,000/s, 93 us |",
        "| outrigger bench | 8,100/s, 58 us |  |  |",
    ]


def test_the_points_vary_one_thing_at_a_time():
    assert (1, 16) in tables.POINTS and (1000, 4096) in tables.POINTS
    assert all(treatments == 1000 or load == 16 for treatments, load in tables.POINTS)
    assert len(set(tables.POINTS)) == len(tables.POINTS)


def test_json_has_a_connection_for_each_request():
    rows = tables.table([each for each in CELLS if each.form == "json"])
    assert rows[0] == "| client | 1,000 treatments, 16 in flight, 16 connections |"


def test_the_page_says_where_it_was_measured():
    text = tables.page(content())
    assert text.startswith("Measured at commit `0123456789ab` on 2 cores (AMD EPYC), with")
    assert "medians of 3 turns of 4 s" in text
    assert "(performance.svg)" in text
    titles = [line for line in text.splitlines() if line.startswith("### ")]
    assert titles == ["### gRPC, columnar", "### gRPC, key-value", "### JSON over HTTP/1.1"]
    modified = {**content(), "commit": {"id": "0123456789abcdef", "modified": True}}
    assert "`0123456789ab` with changes" in tables.page(modified)


def test_the_headline_is_the_figure_with_grpc_go():
    cells = content()["cells"]
    assert tables.headline(cells) == (
        "On two cores it answers 5,300 requests a second of a thousand treatments each with a 99th"
        " percentile of 4.6 ms, with grpc-go as the client, 16 requests in flight.\n"
    )
    with pytest.raises(Failed, match="no cell of grpc-go"):
        tables.headline(cells[1:])


def test_tables_are_rendered_again_from_their_values(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    for page, name in ((tables.PAGE, "tables"), (tables.README, "headline")):
        (tmp_path / page).write_text(f"<!-- {name}: begin -->\n<!-- {name}: end -->\n")
    monkeypatch.setattr(tables, "repository", lambda: tmp_path)
    values = tmp_path / "earlier.json"
    values.write_text(json.dumps(content()))
    arguments = ["--output", str(tmp_path / "out"), "--render", str(values)]
    assert tables.main([*arguments, "--quick"]) == 0
    assert "5,312/s" not in (tmp_path / tables.PAGE).read_text()
    assert tables.main(arguments) == 0
    assert "5,312/s, 93 us" in (tmp_path / tables.PAGE).read_text()
    assert "with grpc-go as the client" in (tmp_path / tables.README).read_text()
    assert (tmp_path / tables.PLOT).read_text() == (tmp_path / "out" / "tables.svg").read_text()
    assert "| grpc-go |" in capsys.readouterr().out


def test_a_client_that_the_machine_lacks_is_left_out(monkeypatch, capsys):
    def missing():
        raise Skipped("Go is not installed")

    def run(client, target, call, effort, may_fail):
        return report()

    monkeypatch.setattr(tables, "needs_go", missing)
    monkeypatch.setattr(tables, "run", run)
    effort = Effort(repeats=1, warmup=0, measured=1, held=0)
    cells = tables.measure(None, Call("json"), effort)
    assert [each.client for each in cells] == ["outrigger bench"]
    assert "Go net/http is left out: Go is not installed" in capsys.readouterr().err


def drawn(text, name):
    tree = ElementTree.fromstring(text)
    return tree.findall(f".//{{http://www.w3.org/2000/svg}}{name}")


def test_a_plot_has_a_line_for_each_client_and_round_values():
    text = tables.plotted(content()["cells"])
    titles = [each.text for each in drawn(text, "text")]
    assert "gRPC, columnar, 16 in flight" in titles
    assert "gRPC, key-value, 1,000 treatments" in titles
    assert "10,000" in titles and titles.count("grpc-go") == 1
    points = [each.get("points").split() for each in drawn(text, "polyline")]
    # By treatments there are two cells of grpc-go, columnar, and by load as well.
    assert [len(each) for each in points] == [2, 1, 1, 2, 1, 1, 1]


def test_larger_values_are_drawn_higher_and_zero_is_not_drawn():
    line = Line("a < b", ((1, 10), (10, 1000), (100, 0)))
    text = svg([[Panel("title", "x", "y", (line,))]])
    (drawn_line,) = drawn(text, "polyline")
    first, second = [
        tuple(map(float, point.split(","))) for point in drawn_line.get("points").split()
    ]
    assert first[0] < second[0] and first[1] > second[1]
    assert "a < b" in [each.text for each in drawn(text, "text")]
