"""Stage 1, environment: `outrigger dev` serves packages as their directories change."""

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from outrigger_testenv import variants
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import tree_package
from outrigger_testenv.client import Client
from outrigger_testenv.features import TREATMENT, USER, numeric
from outrigger_testenv.processes import Process
from outrigger_testenv.stack import library

LISTENERS = ("grpc", "http", "health", "admin")
USERS = pd.DataFrame({"age": [30.0]}, index=["u"])
OFFERS = pd.DataFrame({"price": [1.0, 2.0]}, index=["a", "b"])


class Dev(Process):
    """`outrigger dev` on free ports."""

    def __init__(self, directory: Path, *arguments: str | Path):
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        ports = [f"--set=server.{listener}=127.0.0.1:0" for listener in LISTENERS]
        environment = {
            **library(),
            "TMPDIR": str(self.temporary),
            "XDG_RUNTIME_DIR": str(directory),
        }
        command = [outrigger(), "dev", *ports, *arguments]
        super().__init__("dev", command, directory / "log", environment)

    def text(self) -> str:
        return self.log.read_text()

    def start(self) -> "Dev":
        """Starts it and waits until it is ready."""
        super().start()
        self.wait_for("ready: ")
        return self

    def wait_for(self, text: str, times: int = 1) -> None:
        self.wait_until(lambda: self.text().count(text) >= times)

    def address(self, listener: str) -> str:
        return re.search(rf"listening .*\b{listener}=(\S+)", self.text())[1]

    def served(self) -> list[str]:
        """The digests that were reported as served, in order."""
        return re.findall(r"churn: serves (sha256:\w+)", self.text())

    def engine(self) -> int:
        """The process id of the engine."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        assert len(children) == 1, children
        return int(children[0])


@pytest.fixture
def dev(tmp_path):
    started = []

    def make(*arguments):
        started.append(Dev(tmp_path, *arguments))
        return started[-1].start()

    yield make
    for each in started:
        each.kill()


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    """The directories of two packages, by their constant scores."""
    packages = variants.versions(tmp_path_factory.mktemp("templates"), range(1, 3))
    return {score: package.directory for score, package in enumerate(packages, 1)}


@pytest.fixture
def churn(tmp_path, templates):
    """A directory with the package that scores 1."""
    return shutil.copytree(templates[1], tmp_path / "churn")


def ended(process: int) -> bool:
    """True if a process has ended, even if its parent does not know that yet."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    return True


def test_a_changed_package_is_served_and_a_bad_one_is_not(dev, churn, templates):
    running = dev(churn)
    with Client(running.address("grpc")) as client:

        def score():
            return set(client.predict("churn", USERS, OFFERS)["score"])

        def is_refused(times):
            running.wait_for("; still serves ", times)
            assert score() == {2.0}

        assert score() == {1.0}
        shutil.copytree(templates[2], churn, dirs_exist_ok=True)
        running.wait_until(lambda: len(running.served()) == 2)
        assert score() == {2.0}

        metadata = (churn / "metadata.json").read_text()
        (churn / "metadata.json").write_text(metadata[:-10])
        is_refused(1)
        (churn / "metadata.json").write_text(metadata)
        running.wait_for("the package has not changed")
        (churn / "metadata.json").write_text(metadata.replace('"age"', '"age", "dtypo": 1'))
        is_refused(2)
        assert "dtypo" in running.text()
        shutil.rmtree(churn)
        is_refused(3)

        shutil.copytree(templates[1], churn)
        running.wait_until(lambda: len(running.served()) == 3)
        first, second, third = running.served()
        assert first == third != second
        assert score() == {1.0}
        # Those that are not served any more take no memory and no disk.
        client.wait_until(
            lambda: {version.digest for version in client.model("churn").versions} == {first}
        )


def test_a_package_may_come_later_and_others_can_be_pushed(dev, tmp_path, templates):
    empty = tmp_path / "Not a name"
    empty.mkdir()
    running = dev(f"churn={empty}")
    assert "serves nothing yet" in running.text()
    shutil.copytree(templates[1], empty, dirs_exist_ok=True)
    running.wait_until(running.served)
    images = re.search(r"oci:\S+/images", running.text())[0]
    push = [outrigger(), "push", templates[2], f"{images}/offers:latest"]
    subprocess.run(push, check=True, stdout=subprocess.DEVNULL)
    with Client(running.address("grpc")) as client:
        assert set(client.predict("churn", USERS, OFFERS)["score"]) == {1.0}
        assert set(client.predict("offers", USERS, OFFERS)["score"]) == {2.0}


def test_every_line_names_its_part(dev, churn):
    running = dev(churn)
    parts = {line.split()[1] for line in running.text().splitlines()}
    assert parts == {"dev", "serve", "engine"}
    assert "\x1b" not in running.text(), "colours are for terminals"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(dev, churn, number):
    running = dev(churn)
    engine = running.engine()
    os.kill(running.pid, number)
    running.wait_until_ended()
    assert running.exit_code == 0, running.tail()
    assert ended(engine)
    assert not list(running.temporary.iterdir())


def test_a_signal_ends_the_copy_of_a_large_package(tmp_path, churn):
    os.truncate(next(churn.rglob("saved_model.pb")), 16 << 30)
    running = Dev(tmp_path, churn)
    Process.start(running)
    # The layer of small files, and that of the large one.
    running.wait_until(lambda: len(list(running.temporary.rglob("layer*"))) == 2)
    assert running.stop() == 0, running.tail()
    assert not list(running.temporary.iterdir())


def test_the_engine_ends_with_a_killed_parent(dev, churn):
    running = dev(churn)
    engine = running.engine()
    assert not ended(engine)
    running.kill()
    Client.wait_until(lambda: ended(engine))


def test_an_engine_that_ends_is_started_again(dev, churn):
    running = dev(churn)
    before = running.engine()
    with Client(running.address("grpc")) as client:
        os.kill(before, signal.SIGKILL)
        assert set(client.predict("churn", USERS, OFFERS)["score"]) == {1.0}
    assert "is started again" in running.text()
    assert running.engine() != before


def test_without_tensorflow_it_ends_with_the_engines_message(tmp_path):
    running = Dev(tmp_path, f"--tensorflow={tmp_path}")
    Process.start(running)
    running.wait_until_ended()
    assert running.exit_code == 1
    assert re.search(r"engine .*libtensorflow", running.text())
    assert "the engine did not start" in running.text()


def test_a_directory_that_does_not_exist_is_a_usage_error(tmp_path):
    command = [outrigger(), "dev", tmp_path / "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert "nowhere is not a directory" in done.stderr


def test_trees_are_served_without_an_engine(dev, tmp_path):
    import xgboost

    table = xgboost.DMatrix([[30.0, 1.0], [30.0, 2.0]], [1.0, 2.0], feature_names=["age", "price"])
    booster = xgboost.train({"max_depth": 1, "min_child_weight": 0}, table, 3)
    columns = (
        numeric("age", entity=USER, default=30),
        numeric("price", entity=TREATMENT, required=True),
    )
    package = tree_package(booster, columns, tmp_path / "churn")
    running = dev("--no-engine", package.directory)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text()
    assert children == ""
    with Client(running.address("grpc")) as client:
        scores = client.predict("churn", USERS, OFFERS)["score"].to_numpy("f4")
    assert scores.tobytes() == package.score(USERS, OFFERS)[0].tobytes()
