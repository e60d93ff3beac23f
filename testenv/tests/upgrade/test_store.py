"""A store that the previous version has served from is served on, without its registry."""

import json
import shutil

import pytest

from outrigger_testenv.stack import Stack
from outrigger_testenv.upgrade import served
from outrigger_testenv.upgrade.configuration import differences
from outrigger_testenv.upgrade.places import STORE

# Engines of other processors differ in the last digits.
CLOSE = {"rel": 1e-5, "abs": 1e-6}


@pytest.fixture(scope="module")
def stack(request):
    """The server on a copy of the store; nothing listens where its registry was."""
    with Stack(with_registry=True, start=False) as stack:
        failures = request.session.testsfailed
        served.configure(stack, read(served.MODELS), served.PUBLIC_KEY)
        copy(STORE, stack.directory / "store")
        stack.engine.start()
        stack.serve.start()
        yield stack
        stack.keep = request.session.testsfailed > failures


def copy(source, target):
    """Marks every model as just used: models that are not used for long leave the disk."""
    shutil.copytree(source, target, symlinks=True, copy_function=shutil.copy)


def read(path):
    return json.loads(path.read_text())


def test_every_tag_keeps_its_digest(stack):
    known = read(served.TAGS)
    client = stack.client()
    client.wait_until(lambda: not list(differences(known, served.tags(stack))))


@pytest.mark.parametrize(
    "recorded", read(served.ANSWERS), ids=lambda each: json.dumps(each["request"]["model"])
)
def test_every_model_gives_the_scores_it_gave(stack, recorded):
    answer = served.ask(stack, recorded["request"])
    expected = recorded["response"]
    assert answer["model"] == expected["model"]
    assert answer["scores"] == [
        {**each, "score": pytest.approx(each["score"], **CLOSE)} for each in expected["scores"]
    ]
    for name, values in expected.get("outputs", {}).items():
        assert answer["outputs"][name] == pytest.approx(values, **CLOSE), name


def test_the_canary_on_trial_goes_on_where_it_was(stack):
    before, now = trials(stack, served.ON_TRIAL)
    digests = [[each["canary_digest"] for each in status["canaries"]] for status in (before, now)]
    assert digests[0] == digests[1]
    # The verdict, which counts the requests, comes with the first judgement after the start.
    stack.client().wait_until(
        lambda: (
            served.on_canary(served.canaries(stack)[served.ON_TRIAL]) >= served.on_canary(before)
        )
    )


@pytest.mark.parametrize("model", [served.ABORTED, served.PROMOTED])
def test_decisions_on_canaries_are_remembered(stack, model):
    before, now = (status["decisions"] for status in trials(stack, model))
    assert before
    assert list(differences(before, now)) == []


def trials(stack, model):
    """The model's canary status then and now."""
    return read(served.CANARIES)[model], served.canaries(stack)[model]


def test_nothing_in_the_journal_was_set_aside(stack):
    journal = stack.directory / "store" / "journal"
    assert list(journal.glob("*.damaged")) == []
    # The fixture's files have neither a checksum nor a second copy.
    for name in ("record", "versions", "canaries"):
        assert (journal / f"{name}.json").exists()
        assert (journal / f"{name}.previous.json").exists()


def test_the_fixture_covers_all_files_that_a_server_reads():
    record = json.loads((STORE / "journal" / "record.json").read_text())
    assert all(record[each] for each in ("tags", "desired", "rejected", "promoted"))
    canaries = json.loads((STORE / "journal" / "canaries.json").read_text())
    assert all(canaries[each] for each in ("trials", "decisions"))
    links = [path for path in (STORE / "serving").glob("*/*") if path.is_symlink()]
    assert links and all(path.resolve().is_dir() for path in links)
    assert list((STORE / "trees").glob("*/signatures.json"))
