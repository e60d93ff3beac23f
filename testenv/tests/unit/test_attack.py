"""The parts of the attack suite: frames, layers, the program that discards, the comparison."""

import gzip
import io
import itertools
import socket
import sys
import tarfile

import pytest

from outrigger_testenv import images
from outrigger_testenv.attack import frames, runner, table
from outrigger_testenv.attack.broken import Broken, Late
from outrigger_testenv.attack.case import MIB, Case, Row
from outrigger_testenv.attack.cases import CASES, UNDEFENDED, chosen
from outrigger_testenv.attack.memory import Peak
from outrigger_testenv.attack.messages import field, model, varint
from outrigger_testenv.attack.neighbour import Report
from outrigger_testenv.attack.wire import Calls, paced
from outrigger_testenv.processes import Process, free_ports, listens

PANICKED = "the control plane panicked"


def report(p50, p99):
    return Report(p50, p99, 100, {}, 100.0)


def test_a_frame_has_its_length_kind_flags_and_stream():
    assert frames.frame(frames.PING, frames.ACK, 0, b"12345678") == (
        b"\0\0\x08\x06\x01\0\0\0\x0012345678"
    )


def test_data_is_cut_into_frames_and_the_last_one_ends_the_stream():
    pieces = list(frames.data(3, bytes(frames.MAX_FRAME + 1), end=True))
    assert [piece[:5] for piece in pieces] == [b"\0\x40\0\0\0", b"\0\0\x01\0\x01"]


def test_a_long_header_has_its_length_in_several_bytes():
    assert frames.block([("a", "b" * 300)])[:6] == b"\x00\x01a\x7f\xad\x01"


@pytest.mark.parametrize(("value", "encoded"), [(0, b"\0"), (127, b"\x7f"), (300, b"\xac\x02")])
def test_a_number_of_variable_length(value, encoded):
    assert varint(value) == encoded


def test_the_model_of_a_request_is_what_the_library_reads():
    from outrigger.v1 import prediction_pb2 as pb

    message = pb.PredictRequest.FromString(model("a/b", "t1") + field(2, b"id"))
    assert (message.model.name, message.model.tag, message.request_id) == ("a/b", "t1", "id")


def test_a_compressed_layer_holds_files_that_were_given_in_pieces():
    content = images.compressed_tar({"data/a": (5, [b"he", b"llo"]), "data/b": (0, [])})
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as archive:
        assert archive.getnames() == ["data/a", "data/b"]
        assert archive.extractfile("data/a").read() == b"hello"


def test_the_ratio_is_the_median_of_the_turns():
    rounds = [(report(1, 10), report(1, 5)), (report(1, 30), report(1, 5))]
    rounds.append((report(1, 5), report(1, 5)))
    assert runner.compared(rounds) == (2.0, "p99")


def test_medians_are_compared_where_the_baseline_is_not_steady():
    rounds = [(report(3, 100), report(2, 1)), (report(3, 100), report(2, 10))]
    assert runner.compared(rounds) == (1.5, "p50")


@pytest.fixture
def sink(tmp_path):
    """The program that discards, listening."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "outrigger_testenv.attack.sink", str(port)]
    process = Process("discards", command, tmp_path / "log")
    process.start()
    process.wait_until(lambda: listens(port))
    yield f"127.0.0.1:{port}"
    process.kill()


def test_a_large_call_finds_windows_at_the_program_that_discards(sink):
    calls = Calls(sink)
    calls.call("/a", frames.message(bytes(MIB)))
    calls.close()


def test_the_program_that_discards_answers_no_other_protocol(sink):
    host, port = sink.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_the_peak_counts_from_its_start_and_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("outrigger_testenv.attack.memory.STOP", 60 * MIB)
    code = "import signal; taken = b'x' * (100 << 20); signal.pause()"
    process = Process("large", [sys.executable, "-c", code], tmp_path / "log")
    with Peak(process) as peak:
        process.start()
        with pytest.raises(Exception, match="ended"):
            process.wait_until(lambda: False)
    assert peak.stopped
    assert peak.bytes > 60 * MIB


def test_steps_are_paced():
    assert len(list(paced(100, 0.1))) in range(1, 12)


def test_names_of_cases_are_unique_and_chosen_by_prefix():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert UNDEFENDED.keys() <= set(names)
    assert [case.name for case in chosen("package-tar")] == ["package-tar-size"]


def test_a_row_that_does_not_hold_says_why():
    case = Case("a-b", "an | attack", lambda scene, turn: "")
    row = Row(case, peak=700 * MIB, ratio=2.5, quantile="p99", probes=10, broken=["peak"])
    written = table.markdown([row], ["Commit 1."])
    assert "| `a-b` | an \\| attack | 700 | 2.50 (p99) | 10 of 10 | **not held**: peak |" in written
    assert "0 of 1 cases hold, 0 are not defended, 1 do not hold" in written


class Fake:
    """A scene whose only control plane is a log."""

    def __init__(self, log):
        self.serve = self
        self.process = Process("none", ["true"], log)
        self.replaced = 0
        log.touch()

    def level(self, _):
        return 0

    def fresh(self, _):
        self.replaced += 1

    def address(self, *_):
        return "127.0.0.1:1"


@pytest.fixture
def fake(tmp_path):
    """A scene without processes."""
    return Fake(tmp_path / "log")


def raises(error):
    def act(*_):
        raise error

    return act


def of(fake, attack=lambda *_: "done", neighbour=None, **more):
    return Case("a", "b", attack, stack=lambda _: fake, neighbour=neighbour, **more)


@pytest.mark.parametrize(
    ("repeats", "turns", "late"),
    [(True, 15, []), (False, 5, ["the neighbour's p99 is 3.0 times the baseline"])],
)
def test_a_case_beyond_its_bound_is_measured_over_more_turns(fake, repeats, turns, late):
    # In every other turn the baseline is first.
    first = [3, 1, 1, 3, 3, 1, 1, 3, 3, 1]
    reports = (report(1, p99) for p99 in itertools.chain(first, itertools.repeat(1)))
    ran = []

    def attack(_, turn):
        ran.append(turn.number)
        return "done"

    more = {"repeats": repeats, "probes": (), "baseline": lambda *_: ""}
    row = runner.run(of(fake, attack, lambda *_: next(reports), **more), fake, runner.FULL)
    assert ran == list(range(turns))
    assert (row.late, row.broken) == (late, [])


@pytest.mark.parametrize("broken", [Broken("a bound"), RuntimeError("a process ended")])
def test_a_case_that_fails_is_a_row(fake, broken):
    for case in (of(fake, prepare=raises(broken)), of(fake, raises(broken))):
        row = runner.run(case, fake, runner.UNTIMED)
        assert not row.expected
        assert str(broken) in row.broken[0]
    assert fake.replaced == 2


def test_a_control_plane_that_does_not_start_is_a_row_too(fake):
    case = Case("a", "b", lambda *_: "done", stack=raises(RuntimeError("no stack")))
    assert runner.run(case, fake, runner.UNTIMED).broken == ["RuntimeError: no stack"]


def test_requests_of_the_neighbour_that_fail_break_a_case_that_is_not_timed(fake):
    case = of(fake, neighbour=lambda *_: Report(1, 1, 100, {"OVERLOADED": 3}, 100.0))
    broken = runner.run(case, fake, runner.UNTIMED).broken
    assert broken == ["the neighbour's requests failed: {'OVERLOADED': 3}"]


def test_a_case_may_miss_bounds_of_time_only_where_it_says_why(fake):
    late, reason = Late("282 answers a second"), {"undefended": "no core is left"}
    rows = [
        runner.run(of(fake, raises(error), **more), fake, runner.UNTIMED)
        for error in (late, Broken("a bound"))
        for more in ({}, reason)
    ]
    assert [row.expected for row in rows] == [False, True, False, False]
    assert not any(row.held for row in rows)
    written = table.markdown(rows, [])
    assert "**not defended**: 282 answers a second; no core is left" in written
    assert "0 of 4 cases hold, 1 are not defended, 3 do not hold" in written


def test_a_panic_breaks_a_case(fake):
    log = fake.process.log
    log.write_text("thread 'a' panicked at an earlier case\n")

    def attack(text):
        def write(*_):
            with log.open("a") as file:
                file.write(text)
            return "done"

        return of(fake, write)

    for text, broken in (("", []), ("thread 'b' panicked at x.rs\n", [PANICKED])):
        row = runner.run(attack(text), fake, runner.UNTIMED)
        assert (row.broken, row.outcome) == (broken, "done")
