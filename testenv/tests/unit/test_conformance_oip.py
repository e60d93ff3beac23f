"""The suite for servers of the Open Inference Protocol, on answers that are made here."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from outrigger_testenv.conformance_oip import checks, http, page, rpc, table
from outrigger_testenv.conformance_oip.__main__ import main
from outrigger_testenv.conformance_oip.check import (
    DIFFERS,
    NOT_OFFERED,
    NOT_TRIED,
    OK,
    Check,
    Outcome,
    Seen,
    rest,
    run,
)
from outrigger_testenv.conformance_oip.http import HEADER_LENGTH, Answer
from outrigger_testenv.conformance_oip.runs import checks_of
from outrigger_testenv.conformance_oip.server import BINARY, UNREADY, Place, Server
from outrigger_testenv.conformance_oip.tensors import decoded, encoded, told
from outrigger_testenv.processes import free_ports

JSON = {"content-type": "application/json"}


@contextmanager
def answering(status, body, **headers):
    """A server that answers everything with the same."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()


def place(address):
    (nobody,) = free_ports(1)
    return Place(address, f"127.0.0.1:{nobody}")


def test_all_88_checks_have_cases_with_names_of_their_own():
    assert [check.number for check in checks.ALL] == list(range(1, 89))
    for check in checks.ALL:
        names = Counter((case.form, case.about) for case in check.cases)
        assert names and [name for name, count in names.items() if count > 1] == []


def test_checks_are_chosen_by_name():
    assert [check.name for check in checks_of("S17, S20")] == ["S17", "S20"]
    assert checks_of("S") == []
    assert len(checks_of("")) == 88


@pytest.mark.parametrize("datatype", ["BOOL", "INT8", "INT64", "UINT64", "FP16", "FP32", "BYTES"])
def test_values_survive_their_bytes(datatype):
    values = {"BYTES": [b"a", b""], "BOOL": [True, False]}.get(datatype, [1, 0])
    back = decoded(encoded(values, datatype), datatype)
    assert back == (["a", ""] if datatype == "BYTES" else values)


def test_bytes_with_a_wrong_length_are_no_values():
    with pytest.raises(ValueError, match="an element of 5 bytes in 3"):
        decoded(b"\x05\x00\x00\x00abc", "BYTES")


def test_outputs_are_told_in_json_and_binary():
    outputs = [
        {"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [[1, 2.5]]},
        {"name": "b", "datatype": "INT8", "shape": [1], "parameters": {"binary_data_size": 1}},
    ]
    message = json.dumps({"outputs": outputs}).encode()
    headers = {HEADER_LENGTH.lower(): str(len(message))}
    answer = Answer(200, headers, message + b"\x07")
    assert told(answer) == "200 a FP32 [1,2] [1,2.5]; b INT8 [1] binary [7]"
    with pytest.raises(ValueError, match="1 bytes are left"):
        told(Answer(200, headers, message + b"\x07\x08"))


def test_a_word_that_is_no_json_is_no_answer():
    body = b'{"outputs":[{"name":"a","datatype":"FP32","shape":[1],"data":[NaN]}]}'
    with pytest.raises(ValueError, match="NaN is no JSON"):
        told(Answer(200, JSON, body))


def test_a_text_shows_a_content_type_that_is_not_json():
    body = b'{"b": 1, "a": 2}'
    assert Answer(400, JSON, body).text() == '400 {"a":2,"b":1}'
    assert Answer(400, {}, body).text() == '400 no content type {"a":2,"b":1}'
    assert Answer(400, {"content-type": "text/html"}, b"<p>").text() == "400 text/html <p>"
    assert Answer(415, JSON, b"{}").text("Accept-Encoding") == "415 {} Accept-Encoding: absent"


def test_raw_and_typed_values_in_one_answer_are_no_answer():
    answer = rpc.messages.ModelInferResponse(raw_output_contents=[b"\x01"])
    answer.outputs.add(name="a", datatype="INT8", shape=[1])
    assert rpc.told(answer) == "OK a INT8 [1] raw [1]"
    answer.outputs[0].contents.SetInParent()
    assert rpc.told(answer) == "OK a INT8 [1] raw [1]"
    answer.outputs[0].contents.int_contents.append(1)
    with pytest.raises(ValueError, match="both raw and typed"):
        rpc.told(answer)


def test_an_answer_before_the_end_of_the_request_is_read():
    with answering(413, b"{}", Content_Type="application/json") as address:
        start = http.head("POST", "/", {"Content-Length": 0})
        answer = http.exchange(address, start, *[b" " * (1 << 20)] * 8)
    assert answer.text() == "413 {}"


def test_what_a_server_lacks_is_no_difference():
    case = rest("case", "200 *", lambda server: server.get("/").text())
    with answering(404, b"", Content_Type="application/json") as address:
        server = Server(place(address))
        seen = [
            run(Check(1, "about", [rest("case", "", case.act, needs=need)]), server)
            for need in (BINARY, UNREADY)
        ]
        assert [each.verdict for each in seen] == [NOT_OFFERED, NOT_TRIED]
        assert [each.is_whole for each in seen] == [False, True]
        assert run(Check(1, "about", [case]), server).verdict == DIFFERS


def test_a_check_differs_if_a_case_does():
    case = rest("case", "", lambda server: "")

    def verdict(*verdicts):
        seen = [Seen(case, "", each) for each in verdicts]
        return Outcome(Check(1, "about", [case]), seen).verdict

    assert verdict(OK, DIFFERS, NOT_TRIED) == DIFFERS
    assert verdict(NOT_TRIED, OK, NOT_OFFERED) == OK
    assert verdict(NOT_TRIED, NOT_OFFERED) == NOT_OFFERED
    assert verdict(NOT_TRIED) == NOT_TRIED


def test_the_table_shows_the_first_answer_that_differs():
    check = Check(7, "a rule", [rest("a case", ("1*", "2"), lambda server: "")])
    (case,) = check.cases
    good = Outcome(check, [Seen(case, "1", OK)])
    bad = Outcome(check, [Seen(case, "3|\n<4>", DIFFERS)])
    written = table.markdown({"one": [good], "two": [bad]})
    assert "| S7 | a rule | ✓ | ✗ REST, a case: 3\\| &lt;4> |" in written
    assert "two: 0 as expected, 1 differ, 0 not offered, 0 not tried." in written
    assert "expected: 1* or 2" in table.text(bad)


def test_the_page_has_a_column_for_each_server(tmp_path, monkeypatch):
    file = tmp_path / page.PAGE
    file.parent.mkdir()
    file.write_text("<!-- checks: begin -->\nbefore\n<!-- checks: end -->\n")
    check = Check(7, "a rule", [rest("a case", "", lambda server: "")])
    outcome = Outcome(check, [Seen(check.cases[0], "", OK)])
    monkeypatch.setattr(page, "repository", lambda: tmp_path)
    monkeypatch.setattr(page, "of_outrigger", lambda chosen: [outcome])
    monkeypatch.setattr(page, "of_peer", lambda name, directory, chosen: [outcome])
    assert page.main() == 0
    assert "| # | check | Outrigger | Triton | MLServer | KServe |" in file.read_text()
    assert "| S7 | a rule | ✓ | ✓ | ✓ | ✓ |" in file.read_text()


def test_a_server_that_says_yes_to_everything_differs(capsys, tmp_path):
    written = tmp_path / "table.md"
    with answering(200, b"{}", Content_Type="application/json") as address:
        server = place(address)
        arguments = ["--rest", server.rest, "--grpc", server.grpc, "--only", "S1,S3,S16,S20"]
        code = main([*arguments, "--name", "yes", "--output", str(written)])
    seen = capsys.readouterr().out
    assert code == 1, seen
    assert "✓ REST, live: 200 {}" in seen
    assert (
        'S16: an unknown path is 404\n    ✗ REST, /v2/nothing: 200 {}\n      expected: 404 {"e'
        in seen
    )
    assert "0 as expected, 4 differ" in seen
    assert written.read_text().count("| ✗ ") == 4


def test_a_server_that_does_not_answer_cannot_be_tried(capsys):
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    assert main(["--rest", address, "--grpc", address]) == 2
    assert "cannot be tried" in capsys.readouterr().err
    assert main(["--rest", address, "--grpc", address, "--only", "S99"]) == 64
