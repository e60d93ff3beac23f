"""Models that come from directories of numbered versions, as TensorFlow Serving's base_path."""

import hashlib
import shutil

import pandas as pd
import pytest

from outrigger_testenv.errors import OutriggerError

MODEL = "numbered"
POLL = "200ms"
USERS = pd.DataFrame({"age": [30]})
OFFERS = pd.DataFrame({"price": [1.0]})


class Versions:
    """A directory of versions, into which packages are moved when they are complete."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()

    def add(self, number, package, flat=False):
        """Adds a version; `flat` puts metadata.json beside the files of the model."""
        unfinished = self.directory / f"unfinished-{number}"
        shutil.copytree(package.directory, unfinished)
        if flat:
            parent = unfinished / "tensorflow_serving_model"
            for path in (parent / "model").iterdir():
                path.rename(unfinished / path.name)
            shutil.rmtree(parent)
        unfinished.rename(self.directory / str(number))

    def remove(self, number):
        """Removes a version at once."""
        away = self.directory / "removed"
        (self.directory / str(number)).rename(away)
        shutil.rmtree(away)

    def digest(self, number):
        """The digest of a version by the rule in docs/model-package.md."""
        version = self.directory / str(number)
        files = [path for path in version.rglob("*") if path.is_file()]
        names = sorted(path.relative_to(version).as_posix().encode() for path in files)
        lines = b""
        for name in names:
            content = (version / name.decode()).read_bytes()
            lines += hashlib.sha256(content).hexdigest().encode() + b"  " + name + b"\n"
        return f"sha256:{hashlib.sha256(lines).hexdigest()}"


@pytest.fixture
def versions(tmp_path):
    """An empty directory of versions."""
    return Versions(tmp_path / "models")


@pytest.fixture
def served(own_stack, versions):
    """Starts a stack whose model comes from the directory."""

    def start(**model):
        entry = {"name": MODEL, "directory": str(versions.directory), **model}
        images = {"images": {"directory_poll_interval": POLL}}
        return own_stack(models=[entry], overrides=images)

    return start


def tags(client):
    """The digests that answer for the tags of the model."""
    served = {tag.name: tag.serving_digest for tag in client.model(MODEL).tags}
    return {name: digest for name, digest in served.items() if digest}


def wait_for(client, expected):
    """Waits until exactly these tags are answered, by these digests."""
    client.wait_until(lambda: tags(client) == expected, what=f"not {expected}")


def score(client, **selected):
    return float(client.predict(MODEL, USERS, OFFERS, **selected)["score"].iloc[0])


def test_versions_are_served_as_they_come_and_rolled_back_by_removing_them(served, versions, tiny):
    versions.add(7, tiny(7))
    client = served().client()
    seven = versions.digest(7)
    wait_for(client, {"7": seven, "latest": seven})
    assert score(client) == score(client, tag="7") == score(client, digest=seven) == 7
    versions.add(8, tiny(8), flat=True)
    eight = versions.digest(8)
    wait_for(client, {"8": eight, "latest": eight})
    assert score(client) == 8
    with pytest.raises(OutriggerError) as caught:
        score(client, tag="7")
    assert caught.value.reason == "TAG_NOT_FOUND"
    versions.remove(8)
    wait_for(client, {"7": seven, "latest": seven})
    assert score(client) == 7


def test_a_version_that_is_refused_changes_nothing_and_why_has_the_reason(served, versions, tiny):
    versions.add(7, tiny(7))
    stack = served()
    client = stack.client()
    seven = versions.digest(7)
    wait_for(client, {"7": seven, "latest": seven})
    refused = tiny(8)
    (refused.directory / "metadata.json").unlink()
    versions.add(8, refused)
    client.wait_until(lambda: "no metadata.json" in stack.serve.run("models", "why", MODEL).stdout)
    assert score(client) == score(client, tag="7") == 7
    versions.remove(8)
    versions.add(9, tiny(9))
    nine = versions.digest(9)
    wait_for(client, {"9": nine, "latest": nine})
    assert score(client) == 9


def test_what_was_served_stays_without_the_directory_and_after_a_restart(served, versions, tiny):
    versions.add(7, tiny(7))
    stack = served(versions={"latest": 2})
    client = stack.client()
    seven = versions.digest(7)
    wait_for(client, {"7": seven, "latest": seven})
    away = versions.directory.with_name("away")
    versions.directory.rename(away)
    stack.serve.process.stop()
    stack.serve.start()
    wait_for(client, {"7": seven, "latest": seven})
    assert score(client) == 7
    away.rename(versions.directory)
    versions.add(8, tiny(8))
    eight = versions.digest(8)
    wait_for(client, {"7": seven, "8": eight, "latest": eight})
    assert (score(client), score(client, tag="7")) == (8, 7)
