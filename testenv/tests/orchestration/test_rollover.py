"""A model with `rollover: replace`: the engine has one of its versions at a time."""

import contextlib
import json
import threading

import grpc
import pandas as pd
import pytest

from outrigger_testenv import slow, variants
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.load import Load
from outrigger_testenv.upgrade import loaded

MODEL = "rollover"
OFFERS = pd.DataFrame({"price": [1.0, 2.0]})
# The time that the load of a slow version takes, in seconds, and its score.
SECONDS, SLOW = 2.0, 3.0
DEADLINE = 30.0
ENDED = "END"


@pytest.fixture(scope="module")
def slow_version(tmp_path_factory):
    return slow.slow(tmp_path_factory.mktemp("slow"), SECONDS)


@pytest.fixture
def stack(own_stack, tiny):
    """A stack that serves a version with the score 1, which is replaced by the next one."""
    model = {"name": MODEL, "preload": True, "rollover": "replace"}
    stack = own_stack(models=[model], start=False)
    if stack.registry:
        stack.registry.start()
    stack.first = stack.push(tiny(1), MODEL)
    stack.engine.start()
    stack.serve.start()
    return stack


def versions(stack):
    """The model's versions in the engine by its own account, with their states; without the
    placeholder, a directory where the others are links.
    """
    serving = stack.directory / "store" / "serving"
    seen = {}
    for servable, states in loaded.versions(stack).items():
        own = serving / servable
        placeholders = {
            int(each.name)
            for each in own.iterdir()
            if each.name.isdigit() and not each.is_symlink()
        }
        seen |= {at: state for at, state in states.items() if at not in placeholders}
    return seen


class Watch:
    """Asks the engine for the states of versions all the time, until the end of the block."""

    def __init__(self, stack):
        self._stack = stack
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seen = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(0.005):
            # The engine may be away.
            with contextlib.suppress(grpc.RpcError):
                states = versions(self._stack)
                if self.seen[-1:] != [states]:
                    self.seen.append(states)

    def check(self, loads):
        """Checks that there was at most one version at a time, and this many altogether: an engine
        still lists those that have left.
        """
        for states in self.seen:
            there = [at for at, state in states.items() if state != ENDED]
            assert len(there) <= 1, states
        every = {at for states in self.seen for at in states}
        assert len(every) == loads, self.seen


def probe():
    message = request({"age": 30}, OFFERS)
    message.model.CopyFrom(selector(MODEL))
    return [message]


@contextlib.contextmanager
def under_load(stack, directory, expected):
    """Requests of which none may fail, whichever version answers them."""
    with Load(stack.serve.target, probe(), directory, 8, expected, deadline=DEADLINE) as load:
        load.wait_for(stack.first)
        yield load
        load.wait_until(load.answered + 1000)
        report = load.stop()
    assert (report.failed, report.wrong) == (0, 0), report.first_errors
    print(f"\n  {report}")


def loading(stack):
    return "LOADING" in versions(stack).values()


def why(stack):
    return stack.serve.run("models", "why", MODEL).stdout


def test_no_request_fails_while_versions_are_replaced(stack, tiny, slow_version, tmp_path):
    packages = {2.0: tiny(2), SLOW: slow_version, 4.0: tiny(4), 5.0: tiny(5)}
    digests = {stack.push(each, MODEL, f"v{score}"): score for score, each in packages.items()}
    expected = {stack.first: 1.0, **digests}
    with Watch(stack) as watch, under_load(stack, tmp_path, expected) as load:
        for score, package in packages.items():
            digest = stack.push(package, MODEL)
            assert digests[digest] == score
            load.wait_for(digest)
    watch.check(loads=len(expected))


def test_the_old_version_serves_again_if_the_new_one_fails(stack, tiny, tmp_path, tmp_path_factory):
    bad = variants.tiny(tmp_path_factory.mktemp("bad"), 9)
    treatments = [{"features": {"price": 1.0}}]
    case = {"request": {"user": {}, "treatments": treatments}, "expected": {"scores": [8.0]}}
    (bad.directory / "golden.jsonl").write_text(json.dumps(case) + "\n")
    better = tiny(2)
    good = stack.push(better, MODEL, "good")
    client = stack.client()
    with (
        Watch(stack) as watch,
        under_load(stack, tmp_path, {stack.first: 1.0, good: 2.0}) as load,
    ):
        stack.push(bad, MODEL)
        client.wait_until(lambda: "GOLDEN_MISMATCH" in why(stack), timeout=DEADLINE)
        load.wait_until(load.answered + 1000)
        assert client.serving_digest(MODEL) == stack.first
        stack.push(better, MODEL)
        load.wait_for(good)
    # The first version was loaded twice.
    watch.check(loads=4)


def test_a_version_that_is_not_loaded_is_refused(stack, tiny):
    client = stack.client()
    digest = stack.push(tiny(2), MODEL)
    client.wait_until_serving(MODEL, digest)
    stack.push(tiny(1), MODEL, "old")
    for version in ({"tag": "old"}, {"digest": stack.first}):
        with pytest.raises(OutriggerError) as refused:
            client.predict(MODEL, pd.DataFrame({"age": [30]}), OFFERS, **version)
        assert refused.value.reason == "VERSION_EXCLUDED"
    client.wait_until(lambda: "another version of the model is in the engine" in why(stack))
    stack.push(tiny(3), MODEL, "latest_canary")
    with pytest.raises(OutriggerError) as refused:
        client.load(MODEL, tag="latest_canary")
    assert refused.value.reason == "VERSION_EXCLUDED"
    assert client.serving_digest(MODEL) == digest


def test_a_control_plane_that_ends_in_the_middle_goes_on(stack, slow_version):
    client = stack.client()
    with Watch(stack) as watch:
        digest = stack.push(slow_version, MODEL)
        stack.engine.process.wait_until(lambda: loading(stack))
        stack.serve.process.kill()
        stack.serve.start()
        client.wait_until_serving(MODEL, digest)
        assert list(client.predict(MODEL, pd.DataFrame({"age": [30]}), OFFERS)["score"]) == [3, 3]
    # Killed during a load, the control plane suspects the version, which is loaded again by itself.
    watch.check(loads=3)


def test_no_request_fails_when_the_engine_ends_in_the_middle(stack, slow_version, tmp_path):
    digest = stack.push(slow_version, MODEL, "slow")
    with (
        Watch(stack) as watch,
        under_load(stack, tmp_path, {stack.first: 1.0, digest: SLOW}) as load,
    ):
        stack.push(slow_version, MODEL)
        stack.engine.process.wait_until(lambda: loading(stack))
        stack.engine.process.kill()
        stack.engine.start()
        load.wait_for(digest)
    watch.check(loads=2)
