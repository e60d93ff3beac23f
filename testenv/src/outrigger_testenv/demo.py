"""`make demo`: from training data to scores, with the real binaries.

Trains a campaign model, pushes it to a registry, serves it with an engine and the control plane,
requests scores, replaces the model under load, and compares every score with TensorFlow's own.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.errors import OutriggerError

RTOL, ATOL = 1e-4, 1e-6
USERS = 4_000
SHOWN = 8
MODEL = "campaign"
# The longest wait for scores, seconds: the first ones wait until the engine has loaded the model.
PATIENCE = 120.0


class Screen:
    """Prints numbered sections with short lines."""

    def __init__(self):
        self._section = 0

    def section(self, title: str) -> None:
        """Starts the next section."""
        self._section += 1
        print(f"\n{self._section}  {title}", flush=True)

    def line(self, text: str) -> None:
        """Prints a line of the section."""
        print(f"   {text}", flush=True)

    def table(self, frame: pd.DataFrame) -> None:
        """Prints a frame without its index."""
        for line in frame.to_string(index=False).splitlines():
            self.line(line)


def short(digest: str) -> str:
    """A shortened digest."""
    return digest[: len("sha256:") + 12]


class DemoFailed(RuntimeError):
    """A check of the demo failed."""


class BadData(RuntimeError):
    """The file with data cannot be used."""


@dataclass(frozen=True)
class Beside:
    """The surroundings of the control plane: settings and models of its configuration, and the
    engine's name.
    """

    settings: Mapping[str, Any]
    models: tuple[Mapping[str, Any], ...]
    engine: str


@contextmanager
def nothing(_: Path):
    """Nothing beside the control plane but an engine of TensorFlow, if there is one."""
    yield Beside({}, (), "in the control plane's process")


@dataclass(frozen=True)
class Library:
    """The library of a demo's model."""

    name: str
    # Trains and writes a version, from the table, the directory, the version and the effort.
    train: Callable[[Any, Path, str, int], Any]
    # The unit of the effort, and the efforts of the two versions.
    unit: str
    efforts: tuple[int, int]
    # True if the model needs TensorFlow's engine beside the control plane.
    has_engine: bool
    # Requests the scores of users in another way, and expects the same.
    again: Callable[["Screen", Any, pd.DataFrame, pd.DataFrame], None]
    # The relative and the absolute tolerance of its scores.
    tolerance: tuple[float, float]
    # The end of the last line.
    verdict: str
    # Starts what else runs beside the control plane, in a directory.
    beside: Callable[[Path], AbstractContextManager[Beside]] = nothing


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo; returns 0 only if every score equals TensorFlow's."""
    return command("make demo", __doc__, partial(run, TENSORFLOW), arguments)


def command(
    program: str,
    description: str,
    course: Callable[[Path | None, Path], int],
    arguments: list[str] | None,
) -> int:
    """Runs a demo; returns its exit code. `course` gets the file with data, if there is one, and a
    directory for everything else.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--data", type=Path, help="the MineThatData e-mail file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="outrigger-demo-") as directory:
        quiet_libraries(Path(directory) / "libraries.log")
        try:
            return course(options.data, Path(directory))
        except BadData as error:
            print(f"\ndemo failed: {error}", file=sys.stderr)
            return 64
        except (OSError, RuntimeError, OutriggerError) as error:
            print(f"\ndemo failed: {error}", file=sys.stderr)
            return 1


def quiet_libraries(log: Path) -> None:
    """Redirects the standard error of C++ libraries to a file; Python's errors still appear."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    with log.open("wb") as target:
        os.dup2(target.fileno(), 2)


def run(library: Library, data: Path | None, directory: Path) -> int:
    """The demo of a library's model."""
    from outrigger_testenv import campaign
    from outrigger_testenv.stack import Stack

    screen = Screen()
    table = read(screen, data)
    first, second = (trained(screen, library, table, directory, at) for at in (1, 2))

    with (
        library.beside(directory / "beside") as beside,
        Stack(beside.settings, beside.models, start=False, engine=library.has_engine) as stack,
    ):
        if stack.registry:
            stack.registry.start()
        digest = stack.push(first, MODEL)
        screen.section("Push and start")
        screen.line(f"pushed         {MODEL}:latest  {short(digest)}")
        started(screen, stack, beside)
        with stack.client(PATIENCE) as client:
            users = table.customers.iloc[:USERS]
            scores = asked_by_tag(screen, client, users, digest)
            library.again(screen, stack, users, scores)
            replacement = replaced(screen, stack, client, second, users)
            latest = client.predict(MODEL, users, campaign.OFFERS, users_per_call=50)
        screen.section(f"{library.name}'s own answer")
        count = compared(screen, first, users, scores, digest, tolerance=library.tolerance)
        count += compared(screen, second, users, latest, replacement, tolerance=library.tolerance)
    print(f"\ndemo ok: {count} scores equal {library.name}'s {library.verdict}")
    return 0


def read(screen: Screen, data: Path | None):
    """The customers of a file, or generated ones."""
    from outrigger_testenv import campaign

    screen.section("Data and model")
    try:
        table = campaign.load(data) if data else campaign.generate()
    except (OSError, ValueError) as error:
        raise BadData(str(error)) from error
    screen.line(
        f"{len(table.customers):,} customers ({table.source}), {len(campaign.OFFERS)} offers"
    )
    return table


def trained(screen: Screen, library: Library, table, directory: Path, version: int):
    """Trains and writes one version."""
    effort = library.efforts[version - 1]
    start = time.monotonic()
    package = library.train(table, directory / f"v{version}", str(version), effort)
    seconds = time.monotonic() - start
    screen.line(f"version {version}: {effort} {library.unit} in {seconds:.1f} s, written")
    return package


def train(table, directory: Path, version: str, epochs: int):
    """Trains and exports a version of TensorFlow's model."""
    # Imported here because importing TensorFlow takes seconds.
    from outrigger_testenv import campaign

    return campaign.train(table, directory, version, epochs)


def started(screen: Screen, stack, beside: Beside) -> None:
    """Starts engine and control plane."""
    where = stack.registry.host if stack.registry else "none installed: an OCI layout directory"
    screen.line(f"registry       {where}")
    if stack.engine:
        stack.engine.start()
        program = Path(stack.engine.process.command[0]).name
        screen.line(f"engine         {program}, on a unix socket")
    else:
        screen.line(f"engine         {beside.engine}")
    stack.serve.start()
    screen.line(f"control plane  {stack.serve.target}")


def asked_by_tag(screen: Screen, client, users: pd.DataFrame, digest: str) -> pd.DataFrame:
    """Scores all users by tag; prints the first ones."""
    from outrigger_testenv import campaign

    screen.section("Scores by tag: latest")
    start = time.monotonic()
    scores = client.predict(MODEL, users, campaign.OFFERS, tag="latest", users_per_call=50)
    seconds = time.monotonic() - start
    screen.table(best(scores.iloc[: SHOWN * len(campaign.OFFERS)]))
    screen.line(f"{len(scores):,} scores of {len(users):,} customers in {seconds:.1f} s")
    expect(set(scores["digest"]) == {digest}, "another digest answered")
    return scores


def asked_by_digest(screen: Screen, stack, users: pd.DataFrame, by_tag: pd.DataFrame) -> None:
    """Scores the first users by digest, and expects the same scores."""
    from outrigger_testenv import campaign

    digest = by_tag["digest"].iloc[0]
    screen.section(f"Scores by digest: {short(digest)}")
    with stack.client() as client:
        scores = client.predict(MODEL, users.iloc[:SHOWN], campaign.OFFERS, digest=digest)
    screen.table(best(scores))
    same = np.allclose(scores["score"], by_tag["score"].iloc[: len(scores)], RTOL, ATOL)
    expect(same, "tag and digest give different scores")
    screen.line("the same scores as by tag")


def best(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per user: the best treatment and all scores."""
    wide = scores.pivot(index="user", columns="treatment", values="score")
    wide = wide.loc[scores["user"].unique(), scores["treatment"].unique()]
    wide.insert(0, "best treatment", wide.idxmax(axis=1))
    return wide.rename_axis(columns=None).reset_index().round(4)


def replaced(screen: Screen, stack, client, package, users: pd.DataFrame) -> str:
    """Pushes the second version under load; returns its digest."""
    from outrigger_testenv import campaign
    from outrigger_testenv.client import request, selector
    from outrigger_testenv.load import Load
    from outrigger_testenv.requests import rows

    screen.section("A second version takes over")
    messages = []
    for label, row in zip(users.index[:64], rows(users.iloc[:64]), strict=True):
        message = request(row, campaign.OFFERS, key=str(label))
        message.model.CopyFrom(selector(MODEL))
        messages.append(message)
    with Load(stack.serve.target, messages, stack.directory, concurrency=4) as load:
        load.wait_for(client.serving_digest(MODEL))
        digest = stack.push(package, MODEL)
        screen.line(f"pushed         {MODEL}:latest  {short(digest)}")
        start = time.monotonic()
        load.wait_for(digest)
        client.wait_until_serving(MODEL, digest)
        screen.line(f"took over after {time.monotonic() - start:.1f} s")
        time.sleep(1)
        report = load.stop()
    screen.line(f"{report.requests:,} requests meanwhile, {report.failed} failed")
    for each, count in report.digests.items():
        screen.line(f"  {count:>7,} answered by {short(each)}")
    expect(report.failed == 0, f"requests failed: {report.first_errors}")
    return digest


def compared(
    screen: Screen,
    package,
    users: pd.DataFrame,
    scores: pd.DataFrame,
    digest: str,
    *,
    tolerance: tuple[float, float],
) -> int:
    """Compares served scores with those of the model's own library; returns their number."""
    from outrigger_testenv import campaign

    own = np.concatenate(package.score(users, campaign.OFFERS))
    served = scores["score"].to_numpy()
    expect(set(scores["digest"]) == {digest}, "another digest answered")
    expect(len(own) == len(served), f"{len(served)} scores instead of {len(own)}")
    largest = float(np.abs(own - served).max())
    screen.line(f"{short(digest)}: {len(own):,} scores, largest difference {largest:.2g}")
    expect(np.allclose(served, own, *tolerance), "scores differ from those of the library")
    return len(own)


def expect(holds: bool, failure: str) -> None:
    """Ends the demo if a check failed."""
    if not holds:
        raise DemoFailed(failure)


TENSORFLOW = Library(
    name="TensorFlow",
    train=train,
    unit="epochs",
    efforts=(2, 6),
    has_engine=True,
    again=asked_by_digest,
    tolerance=(RTOL, ATOL),
    verdict=f"within {ATOL:g} + {RTOL:g} relative",
)

if __name__ == "__main__":
    sys.exit(main())
