"""A store that was lost and is restored as docs/operations.md describes."""

import shutil
import subprocess

import pandas as pd
import pytest

from outrigger_testenv.bench.process import resident

USERS = pd.DataFrame({"age": [30]})
OFFERS = pd.DataFrame({"price": [1.0]})


@pytest.fixture
def stack(own_stack, tiny):
    """A stack that has served "kept", which scores 3."""
    stack = own_stack(models=[{"name": "kept", "preload": True}], start=False)
    if stack.registry:
        stack.registry.start()
    stack.push(tiny(3), "kept")
    stack.engine.start()
    stack.serve.start()
    assert score(stack) == 3
    return stack


def score(stack):
    return float(stack.client().predict("kept", USERS, OFFERS)["score"].iloc[0])


def move_to_an_empty_volume(stack, *kept):
    """Ends the pod, and replaces its store by a backup of the kept directories only."""
    store, archive = stack.directory / "store", stack.directory / "backup.tar"
    assert stack.serve.process.stop() == 0
    stack.engine.process.kill()
    subprocess.run(["tar", "-C", store, "-cf", archive, *kept], check=True)
    shutil.rmtree(store)
    store.mkdir()
    subprocess.run(["tar", "-C", store, "-xf", archive], check=True)
    stack.engine.start()


def take_the_registry_away(stack):
    if stack.registry:
        stack.registry.stop()
    else:
        shutil.rmtree(stack.directory / "images")


def test_journal_and_trees_are_enough_to_serve_without_a_registry(stack):
    move_to_an_empty_volume(stack, "journal", "trees")
    take_the_registry_away(stack)
    stack.serve.start()
    assert score(stack) == 3


def test_without_the_trees_a_registry_has_to_answer(stack):
    move_to_an_empty_volume(stack, "journal")
    take_the_registry_away(stack)
    stack.serve.start(wait=False)
    stack.serve.process.wait_until(lambda: "preloaded" in stack.serve.get("/readyz")[1])
    if stack.registry:
        stack.registry.start()
        stack.serve.process.wait_until(lambda: stack.serve.get("/readyz")[0] == 200)
        assert score(stack) == 3


def test_a_journal_of_another_version_is_set_aside_and_models_come_anew(stack):
    assert stack.serve.process.stop() == 0
    journal = stack.directory / "store" / "journal"
    (journal / "record.json").write_text('{"of": "the future"}')
    stack.serve.start()
    assert score(stack) == 3
    assert (journal / "record.damaged").exists()


def test_an_idle_control_plane_is_small(stack):
    assert resident(stack.serve.process) <= 40
