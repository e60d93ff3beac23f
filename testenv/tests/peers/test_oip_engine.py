"""Models on real Triton, MLServer and KServe, scored through engines of the kind `oip`."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv.builder import tree_package
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.features import TREATMENT, USER, numeric
from outrigger_testenv.oip import elsewhere, environments, peers
from outrigger_testenv.oip.elsewhere import OFFERS, USERS
from outrigger_testenv.oip.models import ALL

MODEL = "elsewhere/model"
CLOSE = {"rtol": 1e-6, "atol": 1e-6}
SERVED = tuple(each for each in ALL if each.name in ("pair", "failing"))
NEEDED = {
    "Triton": environments.TRITON,
    "MLServer": environments.MLSERVER,
    "KServe": environments.KSERVE,
}
COLOCATED = pytest.mark.parametrize("name", ["Triton", "MLServer"])
# A canary that is never decided by itself within a test.
CANARY = {"minimum_time": "3600s", "minimum_requests": 100_000, "warm_up": {"requests": 100}}
CANARY |= {"ramp": {"share": 0.5}}
# Time until a version without requests is unloaded.
IDLE = "5s"
# More rows than Triton's configuration of the models allows in one request.
MANY = pd.DataFrame(
    {"price": np.arange(20, dtype=np.float32)}, index=[f"o{at}" for at in range(20)]
)


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Starts servers with some models, each once."""
    running = {}

    def start(name):
        if name not in running:
            environments.needs(NEEDED[name])
            directory = tmp_path_factory.mktemp("peers") / name
            running[name] = peers.PEERS[name](directory, SERVED).__enter__()
        return running[name]

    yield start
    for each in running.values():
        each.close()


@pytest.fixture
def empty(tmp_path):
    """Starts a server without models."""
    running = []

    def start(name):
        environments.needs(NEEDED[name])
        running.append(peers.PEERS[name](tmp_path / "peer", ()).__enter__())
        return running[-1]

    yield start
    for each in running:
        each.close()


@pytest.fixture
def stack_on(own_stack):
    """Makes a stack whose engine `gpu` has these settings."""

    def make(**settings):
        overrides = {
            "engines": {"gpu": {"kind": "oip", **settings}},
            "store": {"idle_ttl": IDLE},
            "canary": {"defaults": CANARY},
        }
        return own_stack(overrides=overrides, engine=False)

    return make


def colocated(stack_on, peer):
    """A stack beside a server whose repository it publishes to."""
    return stack_on(endpoint=peer.grpc, repository=str(peer.repository))


def assert_scores(stack, package, offers=OFFERS, client=None):
    """Scores some users, and compares with the package's own function. Returns the digests."""
    frame = (client or stack.client()).predict(MODEL, USERS, offers)
    own = np.concatenate(package.score(USERS, offers))
    np.testing.assert_allclose(frame["score"].to_numpy("f4"), own, **CLOSE)
    return set(frame["digest"])


def published(peer):
    """The directories that were published for packages."""
    return {mark.parent.name for mark in peer.repository.glob("*/.outrigger")}


def names(digest, *models):
    """The names of a package's models on a server."""
    return {f"{model}-{digest.removeprefix('sha256:')[:16]}" for model in models}


def is_ready(peer, name):
    return peer.get(f"/v2/models/{name}/ready") == 200


def until(stack, package, holds, what):
    """Sends requests, which the package's model answers, until the condition holds."""
    client = stack.client()
    client.wait_until(lambda: assert_scores(stack, package, client=client) and holds(), 120, what)


@pytest.mark.parametrize("way", ["grpc", "rest"])
@pytest.mark.parametrize("name", list(peers.PEERS))
def test_scores_equal_those_of_the_server(started, stack_on, tmp_path, name, way):
    peer = started(name)
    stack = stack_on(endpoint=getattr(peer, way))
    package = elsewhere.pair(tmp_path / "package")
    digest = stack.push(package, MODEL)
    assert assert_scores(stack, package, MANY) == {digest}


@pytest.mark.parametrize("name", list(peers.PEERS))
def test_a_model_that_is_ready_and_fails_every_run_is_not_served(started, stack_on, tmp_path, name):
    peer = started(name)
    assert is_ready(peer, "failing")
    stack = stack_on(endpoint=peer.grpc)
    stack.push(elsewhere.failing(tmp_path / "package"), MODEL)
    with pytest.raises(OutriggerError) as raised:
        stack.client().predict(MODEL, USERS, OFFERS)
    assert raised.value.reason == "GOLDEN_MISMATCH"


@COLOCATED
def test_a_carried_model_is_replaced_and_removed(empty, stack_on, tmp_path, name):
    peer = empty(name)
    stack = colocated(stack_on, peer)
    first, second = (elsewhere.scaled(tmp_path / str(scale), scale, name) for scale in (2, 3))
    old = names(stack.push(first, MODEL), "scaled")
    assert_scores(stack, first, MANY)
    assert published(peer) == old and all(is_ready(peer, each) for each in old)
    digest = stack.push(second, MODEL)
    until_answers(stack, digest)
    assert assert_scores(stack, second) == {digest}
    new = names(digest, "scaled")
    until(stack, second, lambda: published(peer) == new, "the old version is published")
    assert not any(is_ready(peer, each) for each in old)
    # Without requests the new version becomes idle.
    stack.client().wait_until(lambda: not published(peer), 120, "the new version is published")
    assert not any(is_ready(peer, each) for each in new)
    assert assert_scores(stack, second) == {digest}


@COLOCATED
def test_both_arms_of_a_canary_are_loaded_until_it_is_rolled_back(
    empty, stack_on, tmp_path, needs_registry, name
):
    peer = empty(name)
    stack = colocated(stack_on, peer)
    live, canary = (elsewhere.scaled(tmp_path / str(scale), scale, name) for scale in (2, 3))
    digest = stack.push(live, MODEL)
    assert_scores(stack, live)
    other = stack.push(canary, MODEL, "latest_canary")
    until_both_answer(stack, digest, other)
    assert published(peer) == names(digest, "scaled") | names(other, "scaled")
    decide(stack, "abort")
    until(stack, live, lambda: published(peer) == names(digest, "scaled"), "both are published")
    assert assert_scores(stack, live) == {digest}


@COLOCATED
def test_versions_beside_each_other_run_their_own_code(empty, stack_on, tmp_path, name):
    stack = colocated(stack_on, empty(name))
    packages = [elsewhere.coded(tmp_path / str(number), number, name) for number in (1, 2)]
    tagged = zip(packages, "ab", strict=True)
    versions = [(stack.push(package, MODEL, tag), package) for package, tag in tagged]
    for loaded in (1, 2):
        for digest, package in reversed(versions[:loaded]):
            frame = stack.client().predict(MODEL, USERS, OFFERS, digest=digest)
            own = np.concatenate(package.score(USERS, OFFERS))
            np.testing.assert_allclose(frame["score"].to_numpy("f4"), own, **CLOSE)


def test_an_ensemble_of_triton_is_one_model(empty, stack_on, tmp_path):
    peer = empty("Triton")
    stack = colocated(stack_on, peer)
    first, second = (elsewhere.chain(tmp_path / str(scale), scale) for scale in (2, 3))
    stack.push(first, MODEL)
    assert_scores(stack, first)
    digest = stack.push(second, MODEL)
    until_answers(stack, digest)
    assert assert_scores(stack, second) == {digest}
    new = names(digest, "scaled", "chain")
    until(stack, second, lambda: published(peer) == new, "the old ensemble is published")


def test_a_canary_may_have_its_arms_on_two_engines(empty, stack_on, tmp_path, needs_registry):
    import xgboost

    features = (
        numeric("age", entity=USER, default=30),
        numeric("price", entity=TREATMENT, required=True),
    )
    table = np.random.default_rng(1).uniform(0, 50, (500, 2)).astype("f4")
    data = xgboost.DMatrix(table, table.sum(axis=1), feature_names=["age", "price"])
    trees = tree_package(xgboost.train({}, data, 5), features, tmp_path / "trees")
    carried = elsewhere.scaled(tmp_path / "carried", 2, "Triton")
    stack = colocated(stack_on, empty("Triton"))
    live = stack.push(trees, MODEL)
    assert assert_scores(stack, trees) == {live}
    canary = stack.push(carried, MODEL, "latest_canary")
    until_both_answer(stack, live, canary)
    decide(stack, "promote")
    until_answers(stack, canary)
    assert assert_scores(stack, carried) == {canary}


@COLOCATED
def test_a_restarted_server_gets_its_models_again(empty, stack_on, tmp_path, name):
    peer = empty(name)
    stack = colocated(stack_on, peer)
    package = elsewhere.scaled(tmp_path / "package", 2, name)
    stack.push(package, MODEL)
    assert_scores(stack, package)
    peer.process.kill()
    with pytest.raises(OutriggerError) as raised:
        stack.client().predict(MODEL, USERS, OFFERS, timeout=2)
    # The call may have been sent before the connection was lost: then the server may have run it.
    assert raised.value.reason in ("ENGINE_UNAVAILABLE", "ENGINE_FAILED", "DEADLINE")
    peer.__enter__()
    until(stack, package, lambda: True, "the model does not answer")


def test_the_golden_gate_refuses_a_model_that_scores_otherwise(started, stack_on, tmp_path):
    peer = started("KServe")
    package = elsewhere.pair(tmp_path / "package")
    golden = tmp_path / "package" / "golden.jsonl"
    case = json.loads(golden.read_text().splitlines()[0])
    case["expected"]["scores"][0][0] += 1
    golden.write_text(json.dumps(case))
    stack = stack_on(endpoint=peer.rest)
    stack.push(package, MODEL)
    with pytest.raises(OutriggerError) as raised:
        stack.client().predict(MODEL, USERS, OFFERS)
    assert raised.value.reason == "GOLDEN_MISMATCH"


def decide(stack, verb):
    """Ends the canary's trial by hand."""
    reason = ("--reason", "it is a test", "--by", "a test")
    done = stack.serve.run("canary", verb, MODEL, *reason)
    assert done.returncode == 0, done.stderr


def until_answers(stack, digest):
    """Sends requests, which keep the version loaded, until the digest answers them."""
    client = stack.client()
    client.wait_until(
        lambda: set(client.predict(MODEL, USERS, OFFERS)["digest"]) == {digest}, 120, "another"
    )


def until_both_answer(stack, live, canary):
    """Sends requests of many users until both digests have answered."""
    client, seen = stack.client(), set()
    users = itertools.count()

    def answered():
        message = request({"age": next(users)}, OFFERS)
        message.model.CopyFrom(selector(MODEL))
        seen.add(client.call(message).model.digest)
        return seen == {live, canary}

    client.wait_until(answered, 120, "one arm answers")
