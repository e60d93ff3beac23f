"""From the previous version to this one and back, under traffic, with the engine left running."""

import json
import os
import subprocess

import pandas as pd
import pytest

from outrigger_testenv import variants
from outrigger_testenv.binary import outrigger
from outrigger_testenv.client import request, selector
from outrigger_testenv.everything import everything
from outrigger_testenv.features import TREATMENT, USER
from outrigger_testenv.load import Load
from outrigger_testenv.samples import sample
from outrigger_testenv.upgrade.loaded import changes, versions

pytestmark = pytest.mark.usefixtures("needs_registry")

USERS = pd.DataFrame({"age": [30.0]})
OFFERS = pd.DataFrame({"price": [1.0, 2.0]})
SCORES = {"churn": 1.0, "offers": 2.0}
KITCHEN = "kitchen"
# Reasons for which clients of a server that restarts have to ask again: docs/operations.md.
RESTARTING = {"UNAVAILABLE", "SHUTTING_DOWN", "MODEL_LOADING"}
# The load reports every thousand answers, so at least half of a report's answers come after a
# restart.
ENOUGH = 2000


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Two models that each give one score, and one with every kind of feature."""
    directory = tmp_path_factory.mktemp("packages")
    made = {name: variants.tiny(directory / name, score) for name, score in SCORES.items()}
    return {**made, KITCHEN: everything(directory / KITCHEN)}


@pytest.fixture
def stack(own_stack, before, packages):
    """The previous version, which serves three models; one of them is preloaded."""
    stack = own_stack(models=[{"name": "churn", "preload": True}], start=False)
    stack.serve.use(before.binary)
    stack.registry.start()
    stack.digests = {name: stack.push(package, name) for name, package in packages.items()}
    stack.engine.start()
    stack.serve.start()
    for name in packages:
        stack.client().load(name)
    return stack


def probes(kitchen):
    """A request for each model, in turn."""
    messages = {name: request({"age": 30.0}, OFFERS) for name in SCORES}
    messages[KITCHEN] = request(*kitchen_rows(kitchen))
    for name, message in messages.items():
        message.model.CopyFrom(selector(name))
    return messages.values()


def kitchen_rows(kitchen):
    users = sample(kitchen.metadata, USER, 1, absent=0)
    return users.iloc[0].to_dict(), sample(kitchen.metadata, TREATMENT, 3)


@pytest.fixture
def load(stack, packages, tmp_path):
    """Steady traffic for all three models, by a client that asks again when it may."""
    expected = {stack.digests[name]: score for name, score in SCORES.items()}
    requests = probes(packages[KITCHEN])
    load = Load(stack.serve.target, requests, tmp_path, 4, expected, patient=True)
    with load:
        for digest in stack.digests.values():
            load.wait_for(digest)
        yield load


def answers(stack, packages):
    """The answers of all three models, to the last bit; an earlier version answers integers as
    float32.
    """
    client = stack.client()
    kitchen = packages[KITCHEN]
    users = sample(kitchen.metadata, USER, 4)
    offers = sample(kitchen.metadata, TREATMENT, 7)
    frames = [client.predict(name, USERS, OFFERS) for name in SCORES]
    frames.append(client.predict(KITCHEN, users, offers).astype({"rank": "float32"}))
    return pd.concat(frames, ignore_index=True)


def change_to(stack, binary):
    """Ends the server, and starts another version on the same store."""
    assert stack.serve.process.stop() == 0
    stack.serve.use(binary)
    stack.serve.start()


def pass_requests(load):
    load.wait_until(load.answered + ENOUGH)


def check(report):
    """Every request was answered, with the scores of the model that answered."""
    assert report.failed == 0, report.first_errors
    assert report.wrong == 0
    assert set(report.repeated) <= RESTARTING


def test_the_new_version_adopts_all_models_without_a_reload(stack, load, packages, capsys):
    scores, loaded, changed = answers(stack, packages), versions(stack), changes(stack)
    assert len(loaded) == len(packages)
    change_to(stack, outrigger())
    pass_requests(load)
    report = load.stop()
    with capsys.disabled():
        print(f"\n  upgrade: {report}; sent again: {dict(report.repeated)}")
    check(report)
    assert set(report.digests) == set(stack.digests.values())
    assert answers(stack, packages).equals(scores)
    assert versions(stack) == loaded
    assert changes(stack) == changed


def test_going_back_keeps_the_changes_of_the_new_version(stack, load, packages, before, capsys):
    change_to(stack, outrigger())
    client = stack.client()
    stack.push(variants.tiny(stack.directory / "upsell", 4), "upsell")
    client.load("upsell")
    moved = stack.push(packages["churn"], "offers")
    client.wait_until_serving("offers", moved)
    # A replaced version stays in the engine for store.idle_ttl: nothing is about to change.
    scores, loaded = answers(stack, packages), versions(stack)
    changed, known = changes(stack), trees(stack)
    # All that the previous version knows, it knows from the store.
    stack.registry.stop()
    change_to(stack, before.binary)
    pass_requests(load)
    report = load.stop()
    with capsys.disabled():
        print(f"\n  going back: {report}; sent again: {dict(report.repeated)}")
    check(report)
    assert set_aside(stack) == []
    assert answers(stack, packages).equals(scores)
    assert float(stack.client().predict("upsell", USERS, OFFERS)["score"].iloc[0]) == 4
    assert versions(stack) == loaded
    assert changes(stack) == changed
    assert trees(stack) == known


def test_going_back_with_a_journal_that_is_not_understood_needs_the_registry_and_no_pull(
    stack, load, packages, before
):
    change_to(stack, outrigger())
    scores, loaded, known = answers(stack, packages), versions(stack), trees(stack)
    stack.serve.process.stop()
    record = stack.directory / "store" / "journal" / "record.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "of": "the future"}))
    change_to(stack, before.binary)
    pass_requests(load)
    check(load.stop())
    assert set_aside(stack) == ["record.damaged"]
    assert answers(stack, packages).equals(scores)
    assert versions(stack) != loaded, "what the engine says shows no reload"
    assert trees(stack) == known


def test_changes_take_the_token_after_the_upgrade(stack, before):
    """Every caller of the admin listener could make changes; a setting restores that."""
    assert loads(stack), "the previous version asks for no token"
    change_to(stack, outrigger())
    assert not loads(stack)
    assert loads(stack, f"--token-file={stack.serve.token}")
    assert stack.serve.run("models", "load", "churn").returncode == 0, "the command finds it"
    stack.serve.config["auth"] = {"anonymous": ["predict", "read", "change"]}
    change_to(stack, outrigger())
    assert loads(stack)


def loads(stack, *access):
    """Loads a model as a caller elsewhere, which cannot find a token; false if it is refused."""
    command = [outrigger(), "models", "load", "churn", "--admin", stack.serve.admin, *access]
    variables = {**os.environ, "XDG_RUNTIME_DIR": str(stack.directory / "none")}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    return done.returncode == 0


def trees(stack):
    """The unpacked models on disk; one that was unpacked again is another file."""
    found = (stack.directory / "store" / "trees").iterdir()
    states = {tree.name: (tree / "data").stat() for tree in found}
    return {name: (state.st_ino, state.st_mtime_ns) for name, state in states.items()}


def set_aside(stack):
    return [path.name for path in (stack.directory / "store" / "journal").glob("*.damaged")]
