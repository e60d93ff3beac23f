"""A store that was lost and is restored as docs/operations.md describes."""

import shutil
import subprocess

import pandas as pd
import pytest

from outrigger_testenv import disks
from outrigger_testenv.processes import resident

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


def test_trees_alone_are_enough_to_serve_without_a_registry(stack):
    stack.serve.process.wait_until(
        lambda: list((stack.directory / "store").glob("trees/*/seen.json"))
    )
    move_to_an_empty_volume(stack, "trees")
    take_the_registry_away(stack)
    stack.serve.start()
    assert score(stack) == 3
    assert damaged(stack, "record", "trees") == 1


def test_without_the_trees_a_registry_has_to_answer(stack):
    move_to_an_empty_volume(stack, "journal")
    take_the_registry_away(stack)
    stack.serve.start(wait=False)
    stack.serve.process.wait_until(lambda: "preloaded" in stack.serve.get("/readyz")[1])
    if stack.registry:
        stack.registry.start()
        stack.serve.process.wait_until(lambda: stack.serve.get("/readyz")[0] == 200)
        assert score(stack) == 3


@pytest.fixture(params=[4096, 0], ids=["space", "inodes"])
def filler(stack, request):
    """A directory of files that use up the store's file system, whose pod has ended."""
    try:
        with disks.full(stack, request.param) as filler:
            yield filler
    except disks.NoMounts:
        pytest.skip("mounts are not permitted here")


def test_a_restart_with_a_full_disk_serves_what_is_there(stack, filler):
    take_the_registry_away(stack)
    stack.engine.start()
    stack.serve.start()
    assert score(stack) == 3
    stack.serve.process.wait_until(lambda: behind(stack) == 1)
    assert "the disk is full" in stack.serve.process.log.read_text()
    shutil.rmtree(filler)
    stack.serve.process.wait_until(lambda: behind(stack) == 0)
    assert score(stack) == 3


def behind(stack):
    """1 while the journal cannot be written."""
    return stack.serve.metrics()["outrigger_journal_behind"]


FILES = ["record", "versions", "canaries"]
DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[:7],
    "flipped": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "flipped in the checksum": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "of another version": lambda content: b'{"of": "the future"}',
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_journal_loses_nothing(stack, damage):
    assert stack.serve.process.stop() == 0
    stack.engine.process.kill()
    journal = stack.directory / "store" / "journal"
    intact = {name: (journal / f"{name}.json").read_bytes() for name in FILES}
    for name, content in intact.items():
        (journal / f"{name}.json").write_bytes(damage(content))
    take_the_registry_away(stack)
    stack.engine.start()
    stack.serve.start()
    assert score(stack) == 3
    assert [damaged(stack, name, "previous") for name in FILES] == [1, 1, 1]
    assert (journal / "record.damaged").exists()


def test_a_journal_whose_copies_are_both_lost_is_built_from_the_trees(stack):
    assert stack.serve.process.stop() == 0
    for path in (stack.directory / "store" / "journal").iterdir():
        path.write_bytes(path.read_bytes()[:7])
    take_the_registry_away(stack)
    stack.serve.start()
    assert score(stack) == 3
    assert damaged(stack, "record", "nothing") == damaged(stack, "record", "trees") == 1


def damaged(stack, file, used):
    """The number of times that `used` replaced a damaged file of the journal."""
    name = "outrigger_store_journal_damaged_total"
    return stack.serve.metrics()[f'{name}{{file="{file}",used="{used}"}}']


def test_an_idle_control_plane_is_small(stack):
    # The pages of the binary depend on how it was optimised.
    own = resident(stack.serve.process.pid, "RssAnon")
    assert own <= 20e6
