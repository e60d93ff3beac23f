"""Stage 1, environment: `outrigger batch` over lines of OpenAI's batches on llama.cpp's server."""

import json
import subprocess
import time
import urllib.request

import pytest

from outrigger_testenv import pinned
from outrigger_testenv.binary import outrigger
from outrigger_testenv.language.server import LLAMA, Llama

TIMEOUT = 300
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOKENS = 8


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Two servers with the same model."""
    pinned.needs(LLAMA)
    place = tmp_path_factory.mktemp("language")
    with Llama(place / "one") as one, Llama(place / "two") as two:
        yield one, two


def _line(number):
    body = {"model": "tiny", "max_tokens": TOKENS, "temperature": 0, "cache_prompt": False}
    if number % 2:
        return _request(number, COMPLETIONS, body | {"prompt": f"number {number}"})
    message = {"role": "user", "content": f"number {number}"}
    return _request(number, CHAT, body | {"messages": [message]})


def _request(number, url, body):
    return {"custom_id": f"line-{number}", "method": "POST", "url": url, "body": body}


def _text(body):
    """The text of an answer."""
    (choice,) = body["choices"]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def _job(place, hosts, lines, **changes):
    """The file of a job over these lines."""
    (place / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    settings = {
        "input": str(place / "lines.jsonl"),
        "output": str(place / "answers"),
        "protocol": "openai",
        "hosts": [host.url for host in hosts],
        "chunk_rows": 10,
        **changes,
    }
    file = place / "job.json"
    file.write_text(json.dumps(settings))
    return file


def _start(file):
    command = [outrigger(), "batch", "run", file, "-o", "json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _summary(process):
    out, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    return json.loads(out)


def _written(place, kind):
    """The lines of the output, or its dead letters, in the order of the manifest."""
    output = place / "answers"
    manifest = json.loads((output / "manifest.json").read_text())
    files = [chunk[kind]["name"] for chunk in manifest["chunks"] if chunk[kind]]
    return [json.loads(line) for name in files for line in (output / name).open()]


def test_every_line_is_answered_as_if_it_were_sent_alone(hosts, tmp_path):
    lines = [_line(number) for number in range(60)]
    summary = _summary(_start(_job(tmp_path, hosts, lines)))
    assert (summary["scored"], summary["dead"]) == (60, 0)
    answers = _written(tmp_path, "data")
    assert [answer["custom_id"] for answer in answers] == [line["custom_id"] for line in lines]
    assert all(answer["error"] is None for answer in answers)
    assert all(answer["response"]["status_code"] == 200 for answer in answers)
    bodies = [answer["response"]["body"] for answer in answers]
    assert all(0 < body["usage"]["completion_tokens"] <= TOKENS for body in bodies)
    for line, body in list(zip(lines, bodies, strict=True))[:6]:
        content = json.dumps(line["body"]).encode()
        request = urllib.request.Request(hosts[0].url + line["url"], content)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as alone:
            assert _text(json.load(alone)) == _text(body) != ""


def test_a_killed_job_goes_on_and_answers_every_line_once(hosts, tmp_path):
    lines = [_line(number) for number in range(60)]
    file = _job(tmp_path, hosts, lines, requests_per_minute=300)
    first = _start(file)
    deadline = time.monotonic() + TIMEOUT
    while len(list((tmp_path / "answers" / "commit").glob("*.json"))) < 2:
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    first.kill()
    first.communicate()
    assert not (tmp_path / "answers" / "manifest.json").exists()
    summary = _summary(_start(file))
    assert (summary["scored"], summary["dead"]) == (60, 0)
    answers = _written(tmp_path, "data")
    assert [answer["custom_id"] for answer in answers] == [line["custom_id"] for line in lines]


def test_lines_that_the_servers_refuse_are_dead_letters(hosts, tmp_path):
    lines = [_line(number) for number in range(20)]
    # The prompt is longer than the model's context, and the roles are none.
    lines[5]["body"]["prompt"] = "x" * 10_000
    lines[8]["body"]["messages"] = "no list"
    lines[11]["body"]["stream"] = True
    summary = _summary(_start(_job(tmp_path, hosts, lines)))
    assert (summary["scored"], summary["dead"]) == (17, 3)
    letters = _written(tmp_path, "dead_letters")
    assert [letter["row"] for letter in letters] == [5, 8, 11]
    assert [letter["custom_id"] for letter in letters] == ["line-5", "line-8", "line-11"]
    assert [len(letter["hosts"]) for letter in letters] == [2, 2, 0]
