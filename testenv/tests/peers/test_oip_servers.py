"""Two MLServers with the same models behind one engine, of which one goes and comes back."""

import shutil
import time
import urllib.request

import grpc
import numpy as np
import pytest

from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.load import Load
from outrigger_testenv.oip import elsewhere, environments, peers
from outrigger_testenv.oip.elsewhere import OFFERS, USERS
from outrigger_testenv.outage import assert_is_away

MODEL = "elsewhere/pair"
SCALED = "scaled"
RATE = 50.0


@pytest.fixture
def servers(tmp_path):
    """Two servers with the model in their repositories, not loaded. The first one runs."""
    environments.needs(environments.MLSERVER)
    carried = elsewhere.scaled(tmp_path / "carried", 2, "MLServer").directory
    made = []
    for name in ("a", "b"):
        made.append(peers.MLServer(tmp_path / name, ()))
        shutil.copytree(carried / "oip" / SCALED, made[-1].repository / SCALED)
    with made[0]:
        yield made
    for each in made:
        each.close()


def hang_on_demand(model):
    """Has runs of the model wait while the file that is returned exists."""
    code, sign = model / "mlserver_scaled.py", model / "hangs"
    begin = '"""Answers a request."""'
    wait = f"import asyncio\n        while Path({str(sign)!r}).exists(): await asyncio.sleep(0.05)"
    text = code.read_text()
    assert text.count(begin) == 1
    code.write_text(text.replace(begin, f"{begin}\n        {wait}"))
    return sign


@pytest.fixture
def stack(own_stack, servers):
    """A control plane in front of both."""
    engine = {"kind": "oip", "endpoint": [each.grpc for each in servers], "load": True}
    return own_stack(overrides={"engines": {"gpu": engine}}, engine=False)


@pytest.fixture
def package(tmp_path):
    """A package of the model that both servers have."""
    return elsewhere.of_rows(tmp_path / "package", SCALED, 2)


def assert_scores(stack, package):
    frame = stack.client().predict(MODEL, USERS, OFFERS)
    own = np.concatenate(package.score(USERS, OFFERS))
    np.testing.assert_allclose(frame["score"].to_numpy("f4"), own, rtol=1e-6)


def has_model(peer):
    return peer.get(f"/v2/models/{SCALED}/ready") == 200


def log(stack):
    return stack.serve.process.log.read_text()


def page(stack):
    """The state that the page shows."""
    with urllib.request.urlopen(f"http://{stack.serve.admin}/ui/events", timeout=5) as events:
        return events.readline().decode() + events.readline().decode()


def unload(peer):
    """Takes the model from a server, as its operator may."""
    path = f"http://{peer.rest}/v2/repository/models/{SCALED}/unload"
    urllib.request.urlopen(urllib.request.Request(path, b"{}"), timeout=30).close()


def test_a_server_that_is_down_at_the_load_follows_when_it_is_back(servers, stack, package):
    up, down = servers
    stack.push(package, MODEL)
    assert_scores(stack, package)
    stack.serve.process.kill()
    stack.serve.start()
    assert_scores(stack, package)
    assert "a server does not answer" in log(stack)
    down.__enter__()
    stack.client().wait_until(lambda: has_model(down), 120, "it has not followed")
    up.process.kill()
    assert_scores(stack, package)


def test_a_healthy_server_that_hangs_in_runs_is_left_out_until_it_answers(servers, stack, package):
    _, hanging = servers
    sign = hang_on_demand(hanging.repository / SCALED)
    hanging.__enter__()
    stack.push(package, MODEL)
    assert_scores(stack, package)
    client = stack.client()
    client.wait_until(lambda: has_model(hanging), 120, "it has not followed")
    sign.touch()
    late = 0
    for _ in range(40):
        try:
            client.predict(MODEL, USERS, OFFERS, timeout=2)
        except OutriggerError as error:
            assert error.code == grpc.StatusCode.DEADLINE_EXCEEDED, error
            late += 1
    assert late <= 1, "only the first run without an answer may be late"
    assert "a server fails the calls of a model; others get them" in log(stack)
    client.wait_until(lambda: f"fails the calls of {SCALED}" in page(stack), 10, "not on the page")
    sign.unlink()
    back = "a server gets the calls of a model again"
    client.wait_until(lambda: assert_scores(stack, package) or back in log(stack))


def test_a_server_that_no_longer_has_the_model_costs_no_time_and_loads_it_again(
    servers, stack, package
):
    _, lacking = servers
    lacking.__enter__()
    stack.push(package, MODEL)
    assert_scores(stack, package)
    client = stack.client()
    client.wait_until(lambda: has_model(lacking), 120, "it has not followed")
    unload(lacking)
    start = time.monotonic()
    for _ in range(20):
        assert_scores(stack, package)
    # Each took 2 s at a server without the model.
    assert time.monotonic() - start < 10
    client.wait_until(lambda: has_model(lacking), 60, "it is not loaded again")
    assert "others get its calls" in log(stack)


@pytest.mark.parametrize(("end", "back"), [("kill", "start"), ("pause", "resume")])
def test_requests_get_the_reason_long_before_their_deadlines_when_no_server_answers(
    servers, stack, package, end, back
):
    up, _ = servers
    stack.push(package, MODEL)
    assert_scores(stack, package)
    client = stack.client()
    getattr(up.process, end)()
    try:
        assert_is_away(lambda: client.predict(MODEL, USERS, OFFERS, timeout=30))
    finally:
        getattr(up.process, back)()
    client.wait_until(lambda: client.predict(MODEL, USERS, OFFERS, timeout=5) is not None)


def test_no_request_fails_while_a_server_goes_and_comes_back_empty(
    servers, stack, package, tmp_path
):
    _, leaving = servers
    leaving.__enter__()
    stack.push(package, MODEL)
    assert_scores(stack, package)
    stack.client().wait_until(lambda: has_model(leaving), 120, "it has not followed")
    frame = request(USERS.iloc[0].to_dict(), OFFERS)
    frame.model.CopyFrom(selector(MODEL))
    times = {}
    start = time.monotonic()
    with Load(stack.serve.target, [frame], tmp_path, rate=RATE, deadline=20) as load:
        load.wait_until(1000)
        times["gone"] = time.monotonic() - start
        leaving.process.kill()
        load.wait_until(2000)
        times["back"] = time.monotonic() - start
        leaving.__enter__()
        stack.client().wait_until(lambda: has_model(leaving), 120, "it is not loaded again")
        load.wait_until(4000)
        report = load.stop()
    for name in ("gone", "back"):
        print(name, _p99(report, times[name] + 2, times[name] + 18))
    print("healthy", _p99(report, 2, times["gone"]))
    assert report.failed == 0, report.first_errors
    for line in (
        "a server does not answer",
        "a server answers again",
        "a server has a model again",
    ):
        assert line in log(stack), line


def _p99(report, since, until):
    took = [took for due, took, *_ in report.course if since <= due < until]
    return f"{np.percentile(took, 99) * 1000:.1f} ms of {len(took)}" if took else "none"
