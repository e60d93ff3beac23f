"""The load generators in Go and Python against a scripted server, and the check of their scores."""

import json
import subprocess
import threading
from collections import Counter
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_connection, create_server
from types import SimpleNamespace

import grpc
import numpy as np
import pandas as pd
import pytest
from google.rpc import error_details_pb2, status_pb2

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv import tools
from outrigger_testenv.bench import clients, core, messages
from outrigger_testenv.bench.clients import BENCH, CORE, GO, GO_HTTP, ONE, Call, Order, Served
from outrigger_testenv.bench.figure import QUICK, Effort, Failed, Skipped
from outrigger_testenv.bench.generator import execute
from outrigger_testenv.client import request

SHORT = Effort(repeats=1, warmup=0.05, measured=0.4, held=0)
USERS = pd.DataFrame({"age": np.array([0.5], "f4"), "spend": np.array([-2.0], "f4")})
OFFERS = pd.DataFrame(
    {"price": np.array([1, 2, 3], "f4"), "weight": np.array([0.25, 0.5, 4], "f4")},
    index=["a", "b", "c"],
)


@pytest.fixture
def go(capsys):
    """Skips the test without a Go that can build the generator, and says so at the end of CI."""
    try:
        clients.needs_go()
    except Skipped as missing:
        with capsys.disabled():
            print(f"\nNOT TESTED: the load generator over grpc-go: {missing}")
        pytest.skip(str(missing))


@pytest.fixture(params=[GO, CORE], ids=["go", "core"])
def client(request):
    """Each generator over gRPC."""
    if request.param == GO:
        request.getfixturevalue("go")
    return request.param


@dataclass
class Seen:
    """The requests that a scripted server got."""

    port: int = 0
    messages: Counter = field(default_factory=Counter)
    count: int = 0


@contextmanager
def server(answer, options=()):
    """A server whose Predict returns `answer(number, message, context)`."""
    seen, lock = Seen(), threading.Lock()

    def predict(message, context):
        with lock:
            seen.messages[message] += 1
            seen.count += 1
            number = seen.count
        return answer(number, message, context)

    def handler(details):
        assert details.method == "/outrigger.v1.PredictionService/Predict"
        return grpc.unary_unary_rpc_method_handler(predict)

    running = grpc.server(
        futures.ThreadPoolExecutor(8),
        handlers=[SimpleNamespace(service=handler)],
        options=options,
    )
    seen.port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    try:
        yield seen
    finally:
        running.stop(None).wait()


def scores(*_):
    return pb.PredictResponse(scores=pb.ScoreList(values=[0.25, 0.5, 0.75])).SerializeToString()


def refuses_after(first, reason=""):
    """Answers the first requests, and refuses the later ones, with a reason if there is one."""

    def answer(number, message, context):
        if number <= first:
            return scores()
        if reason:
            status = status_pb2.Status(code=8, message="busy")
            status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason))
            details = status.SerializeToString()
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
        return context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")

    return answer


def files(directory, *contents, kind="binpb"):
    paths = [directory / f"request-{at}.{kind}" for at in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def served(port):
    """A control plane at a port; this process stands for it."""
    here = f"127.0.0.1:{port}"
    process = SimpleNamespace(pid=threading.main_thread().native_id)
    serve = SimpleNamespace(target=here, http=f"http://{here}", process=process)
    stack = SimpleNamespace(serve=serve, engine=SimpleNamespace(process=process))
    return Served(stack, SimpleNamespace(directory=Path("/package")), None)


def ask(client, port, directory, requests, call, *, may_fail=False):
    order = Order(served(port), call, SHORT, requests, directory)
    return execute(client.name, client.command(order), may_fail)


def test_a_closed_loop_sends_the_files_and_reports_as_outrigger_bench(client, tmp_path):
    requests = files(tmp_path, b"first", b"second")
    with server(scores) as seen:
        report = ask(client, seen.port, tmp_path, requests, Call(in_flight=4, timeout=30))
    assert set(seen.messages) == {b"first", b"second"}
    sent = report.json
    assert report.throughput == pytest.approx(sent["ok"] / SHORT.measured)
    assert sent["requests"] == sent["ok"] > 0
    assert (report.failed, sent["errors"], sent["offered_rate"]) == (0, {}, None)
    assert 0 < sent["latency_ms"]["p50"] <= report.p99 <= sent["latency_ms"]["max"]
    assert sent["cpu_seconds_per_request"]["client"] > 0
    assert report.cpu("control-plane") > 0
    assert sent["response_bytes"] == len(scores())
    assert sent["request_bytes"] == 5.5
    assert (sent["settings"]["in_flight"], sent["settings"]["connections"]) == (4, 2)
    for at in range(2):
        assert (tmp_path / f"answer-{at}.binpb").read_bytes() == scores()


def test_refusals_are_counted_by_reason_and_code(client, tmp_path):
    requests = files(tmp_path, b"request")
    with server(refuses_after(1, "OVERLOADED")) as seen:
        report = ask(client, seen.port, tmp_path, requests, Call(), may_fail=True)
        assert set(report.json["errors"]) == {"OVERLOADED"}
        assert set(report.json["codes"]) == {"RESOURCE_EXHAUSTED"}
        assert report.json["ok"] == 0 and report.json["latency_ms"] is None
    with (
        server(refuses_after(1)) as seen,
        pytest.raises(Failed, match=r"requests failed \(\d+ RESOURCE_EXHAUSTED\)"),
    ):
        ask(client, seen.port, tmp_path, requests, Call())


def test_a_refused_first_request_ends_the_run_with_its_reason(client, tmp_path):
    with (
        server(refuses_after(0, "OVERLOADED")) as seen,
        pytest.raises(Failed, match="the first request is not answered"),
    ):
        ask(client, seen.port, tmp_path, files(tmp_path, b"request"), Call(), may_fail=True)


@contextmanager
def unanswered():
    """A server that answers the first request only, as long as the body runs."""
    over = threading.Event()

    def waits(number, message, context):
        if number > 1:
            over.wait(30)
        return scores()

    with server(waits) as seen:
        yield seen
        over.set()


def test_a_deadline_ends_a_request(client, tmp_path):
    with unanswered() as seen:
        call = Call(in_flight=2, timeout=0.1)
        report = ask(client, seen.port, tmp_path, files(tmp_path, b"r"), call, may_fail=True)
    assert set(report.json["errors"]) == {"DEADLINE_EXCEEDED"}


def test_an_open_loop_sends_at_its_rate(go, tmp_path):
    with server(scores) as seen:
        call = Call(rate=200, in_flight=100, timeout=30)
        report = ask(GO, seen.port, tmp_path, files(tmp_path, b"request"), call)
    assert (report.offered_rate, report.json["mode"]) == (200, "rate")
    assert report.json["requests"] == report.json["ok"] == 200 * SHORT.measured


def test_an_open_loop_counts_what_it_may_not_send(go, tmp_path):
    with unanswered() as seen:
        call = Call(rate=100, in_flight=2, timeout=0.45)
        report = ask(GO, seen.port, tmp_path, files(tmp_path, b"r"), call, may_fail=True)
    assert report.json["errors"]["CLIENT_SATURATED"] >= 30
    assert report.json["requests"] == 40


def test_the_c_core_has_no_open_loop(tmp_path):
    with pytest.raises(Failed, match="no open loop"):
        ask(CORE, 1, tmp_path, [], Call(rate=1))


def test_grpc_go_sends_frames_of_16_kib_even_if_larger_ones_are_allowed(go, tmp_path):
    message = bytes(100_000)
    options = [("grpc.http2.max_frame_size", 1 << 20), ("grpc.http2.lookahead_bytes", 1 << 20)]
    with server(scores, options) as seen, recorder(seen.port) as (port, recorded):
        call = Call(in_flight=1, connections=1, timeout=30)
        ask(GO, port, tmp_path, files(tmp_path, message), call)
    lengths = data_frames(bytes(recorded))
    assert max(lengths) == clients.FRAME
    # The prefix of a message has 5 bytes. A window that is used up also ends a frame, so not every
    # message is cut in the same way.
    whole, rest = divmod(len(message) + 5, clients.FRAME)
    cut = [clients.FRAME] * whole + [rest]
    assert cut in [lengths[at : at + len(cut)] for at in range(len(lengths))]


@contextmanager
def recorder(port):
    """Passes one connection on to a port, and records what its client sends."""
    recorded = bytearray()
    with create_server(("127.0.0.1", 0)) as listener:

        def pass_on(source, sink, record):
            # The other direction ends by an error when this one has closed its socket.
            with suppress(OSError):
                while part := source.recv(1 << 16):
                    if record:
                        recorded.extend(part)
                    sink.sendall(part)
            sink.close()

        def accept():
            caller, _ = listener.accept()
            target = create_connection(("127.0.0.1", port))
            back = threading.Thread(target=pass_on, args=(target, caller, False), daemon=True)
            back.start()
            pass_on(caller, target, True)

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], recorded


def data_frames(sent):
    """The lengths of the DATA frames that a client of HTTP/2 sent."""
    lengths, at = [], len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    while at + 9 <= len(sent):
        length, kind = int.from_bytes(sent[at : at + 3], "big"), sent[at + 3]
        # DATA; an empty frame ends a stream.
        if kind == 0 and length:
            lengths.append(length)
        at += 9 + length
    return lengths


class Web(BaseHTTPRequestHandler):
    """Answers the first request of a server, and refuses the later ones if it must."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append((self.path, body, self.headers["x-request-timeout"]))
        refused = self.server.refuses and len(self.server.seen) > 1
        answer = {"error": {"reason": "OVERLOADED"}} if refused else {"scores": []}
        content = json.dumps(answer).encode()
        self.send_response(429 if refused else 200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Keeps the output of tests short."""


@pytest.mark.parametrize("refuses", [False, True])
def test_json_goes_to_the_path_of_predictions(go, tmp_path, refuses):
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as web:
        web.seen, web.refuses = [], refuses
        threading.Thread(target=web.serve_forever, daemon=True).start()
        requests = files(tmp_path, b'{"user": {}}', kind="json")
        call = Call("json", in_flight=3, timeout=30)
        report = ask(GO_HTTP, web.server_port, tmp_path, requests, call, may_fail=True)
        web.shutdown()
    assert {(path, body) for path, body, _ in web.seen} == {("/v1/predict", b'{"user": {}}')}
    assert web.seen[-1][2] == "30000ms"
    assert (tmp_path / "answer-0.json").read_bytes() == b'{"scores": []}'
    if refuses:
        assert report.json["codes"] == {"HTTP_429": report.failed}
        assert set(report.json["errors"]) == {"OVERLOADED"}
    else:
        assert report.json["ok"] > 0 and report.failed == 0


@pytest.mark.parametrize(
    "arguments",
    [[], ["-in-flight", "0"], ["-pid", "engine"], ["-timeout", "-1s"], ["-no-such-option"]],
)
def test_unusable_options_are_usage_errors(go, tmp_path, arguments):
    (file,) = files(tmp_path, b"request")
    given = ["-target", "127.0.0.1:9", "-request", str(file), *arguments] if arguments else []
    done = subprocess.run([clients.go_client(), *given], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (64, b"")
    assert done.stderr


def test_the_go_code_is_formatted_and_vetted(go):
    go = clients.needs_go()
    formatter = Path(go).resolve().with_name("gofmt")
    listed = subprocess.run(
        [formatter, "-l", "."], cwd=clients.SOURCE, capture_output=True, text=True, check=True
    )
    assert listed.stdout == ""
    subprocess.run([go, "vet", "."], cwd=clients.SOURCE, check=True)


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_without_go_its_client_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_GO", str(tmp_path / "none"))
    with pytest.raises(Skipped, match="Go is not installed"):
        clients.needs_go()


def test_a_go_that_is_too_old_is_named(tmp_path, monkeypatch):
    script(tmp_path / "go", "echo go1.19.8")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Skipped, match=r"Go is go1\.19\.8, and grpc-go needs 1\.\d+"):
        clients.needs_go()
    script(tmp_path / "go", "echo go1.99.1")
    assert clients.needs_go() == str(tmp_path / "go")


def test_versions_are_compared_as_numbers():
    assert clients.version_of("go1.26.8") == (1, 26)
    assert clients.version_of("1.9") < clients.version_of("1.24.0")
    assert clients.version_of("devel") == ()


def test_outrigger_bench_gets_the_size_of_its_frames(tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "outrigger", lambda: Path("/bin/outrigger"))
    call = Call("kv", 5000, connections=1, in_flight=512, timeout=10)
    order = Order(served(9000), call, QUICK, [], tmp_path)
    line = " ".join(BENCH.command(order))
    assert " --server 127.0.0.1:9000 " in line and " --form kv --treatments 5000 " in line
    assert f" --frame-size 16384 --save {tmp_path} --max --in-flight 512 " in line
    # No more threads than connections.
    assert " --connections 1 --threads 1 --timeout 10000ms " in line
    assert " --warmup 500ms --duration 1000ms --pid control-plane=" in line
    assert " --frame-size 1048576 " in " ".join(ONE.command(order))
    rate = Order(served(9000), Call(rate=12.5), QUICK, [], tmp_path)
    assert " --rate 12.5 --in-flight " in " ".join(BENCH.command(rate))


def test_a_share_is_no_fraction_of_a_connection(tmp_path):
    (file,) = files(tmp_path, b"r")
    options = ["-target", "x", "-request", str(file), "-connections", "3", "-in-flight", "64"]
    work = core.shares(core.arguments([*options, "-processes", "2"]), [b"r"])
    assert [(each.connections, each.in_flight) for each in work] == [(2, 32), (1, 32)]
    assert len(core.shares(core.arguments([*options, "-processes", "9"]), [b"r"])) == 3


def package(expected=(0.25, 0.5, 0.75)):
    """A package whose scores are known, which records the frames that it scores."""
    scored = []

    def score(users, treatments):
        scored.append((users, treatments))
        return [np.array(expected)]

    return SimpleNamespace(score=score, scored=scored)


def encoded(form):
    if form == "json":
        rows = [{"features": row} for row in OFFERS.to_dict("records")]
        return json.dumps({"user": USERS.to_dict("records")[0], "treatments": rows}).encode()
    return request(USERS.to_dict("records")[0], OFFERS, form).SerializeToString()


@pytest.mark.parametrize("form", ["table", "key_value", "json"])
def test_the_models_scores_are_computed_from_the_request_itself(tmp_path, form):
    kind = "json" if form == "json" else "binpb"
    files(tmp_path, encoded(form), kind=kind)
    known = package()
    messages.batch(known, tmp_path)
    ((users, offers),) = known.scored
    columns = sorted(OFFERS.columns)
    np.testing.assert_array_equal(users[sorted(USERS.columns)], USERS[sorted(USERS.columns)])
    np.testing.assert_array_equal(offers[columns], OFFERS[columns])


def test_scores_that_are_not_the_models_refuse_the_run(tmp_path):
    files(tmp_path, encoded("table"))
    batch = messages.batch(package(), tmp_path)
    answers = tmp_path / "answers"
    answers.mkdir()
    with pytest.raises(Failed, match="grpc-go: it saved no answer to request 0"):
        batch.check("grpc-go", answers)
    (answers / "answer-0.binpb").write_bytes(scores())
    batch.check("grpc-go", answers)
    for wrong in ([0.25, 0.5, 0.76], [0.25, 0.5]):
        answer = pb.PredictResponse(scores=pb.ScoreList(values=wrong))
        (answers / "answer-0.binpb").write_bytes(answer.SerializeToString())
        with pytest.raises(Failed, match="grpc-go: the scores for request 0 are not"):
            batch.check("grpc-go", answers)


def test_a_client_that_sent_another_request_is_refused(tmp_path):
    files(tmp_path, encoded("table"))
    batch = messages.batch(package(), tmp_path)
    answers = tmp_path / "answers"
    answers.mkdir()
    (answers / "answer-0.binpb").write_bytes(scores())
    (answers / "request-0.binpb").write_bytes(encoded("key_value"))
    with pytest.raises(Failed, match="request 0 is not the one that the others send"):
        batch.check("outrigger bench", answers)


def test_scores_in_json_are_read_too(tmp_path):
    file = tmp_path / "answer-0.json"
    file.write_text('{"scores": [{"id": "a", "score": 0.5}, {"id": "b", "score": 1}]}')
    assert messages.scores_of(file).tolist() == [0.5, 1]


def test_requests_are_written_once_and_checked_for(tmp_path, monkeypatch):
    runs = []

    def execute(side, command, may_fail=False):
        runs.append(command)
        directory = Path(command[command.index("--save") + 1])
        if "columnar" in command:
            files(directory, encoded("table"))

    monkeypatch.setattr(messages, "execute", execute)
    monkeypatch.setattr(messages, "outrigger", lambda: Path("/bin/outrigger"))
    known = package()
    known.directory = tmp_path
    made = messages.Messages(known)
    first = made.of("127.0.0.1:1", "reference", "columnar", 3)
    assert made.of("127.0.0.1:1", "reference", "columnar", 3) is first
    assert len(runs) == 1
    with pytest.raises(Failed, match="no requests in"):
        made.of("127.0.0.1:1", "reference", "kv", 3)
