"""The counts, in parts that run side by side, each on one processor.

python -m outrigger_testenv.cost.parts PART --program FILE --processor NUMBER --output FILE
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outrigger_testenv.cost import meter, requests
from outrigger_testenv.cost.meter import Counts, Meter, median
from outrigger_testenv.processes import free_ports
from outrigger_testenv.stack import Stack

# Requests before the first one that is counted.
_WARM = 4
# Rows of a batch job; another one has twice as many.
_ROWS = 1000
# Tags that are pushed, seconds between two looks at the registry, and those in which a pushed tag
# is found, loaded and in the place of the one before.
_TAGS, _POLL, _WINDOW = 3, 2, 8
_MODELS, _IDLE = 50, 60
# Threads that load end after ten seconds.
_SETTLED = 12
# Seconds in which the control plane starts and loads a model under callgrind.
_STARTED = 300
# The product's default, in place of that of tests, and one that never comes.
_DEFAULT = {"images": {"poll_interval": "30s"}}
_SELDOM = {"images": {"poll_interval": "1h"}}
# Longer than any request takes under callgrind.
_DEADLINE = "5m"

Counted = dict[str, Counts]


def through_engine(program: Path, directory: Path) -> Counted:
    """Requests to a model that TensorFlow runs."""
    with _engine_stack(program, directory) as (stack, counter):
        return _each(requests.THROUGH_ENGINE, stack, counter)


def of_trees(program: Path, directory: Path) -> Counted:
    """Requests to models that the control plane runs."""
    with _trees_stack(program, directory) as (stack, counter):
        return _each(requests.OF_TREES, stack, counter)


@contextmanager
def _engine_stack(program: Path, directory: Path) -> Iterator[tuple[Stack, Meter]]:
    package = requests.reference_package(directory / "package")
    server = {"server": {"default_deadline": _DEADLINE}}
    models = [{"name": requests.REFERENCE}]
    stack = Stack({**server, **_SELDOM}, models, False, threads=1, start=False)
    with stack, _watched(stack, program, directory, {requests.REFERENCE: package}) as counter:
        yield stack, counter


@contextmanager
def _trees_stack(program: Path, directory: Path) -> Iterator[tuple[Stack, Meter]]:
    packages = {
        requests.TREES: requests.trees_package(directory / "trees"),
        requests.SPARSE: requests.sparse_package(directory / "sparse"),
    }
    ports = [f"127.0.0.1:{port}" for port in free_ports(2)]
    server = dict(zip(("oip", "xgboost_serving"), ports, strict=True))
    server["default_deadline"] = _DEADLINE
    models = [{"name": name} for name in packages]
    stack = Stack({"server": server, **_SELDOM}, models, False, start=False, engine=False)
    with stack, _watched(stack, program, directory, packages) as counter:
        yield stack, counter


def batch_row(program: Path, directory: Path) -> Counted:
    """A row of a batch job with a package of trees."""
    few, many = (_batch(program, directory / str(rows), rows)[0] for rows in (_ROWS, 2 * _ROWS))
    return {"batch-row": (many - few) / _ROWS}


def _batch(program: Path, directory: Path, rows: int) -> tuple[Counts, Meter]:
    """The counts of a job of so many rows."""
    import pandas as pd

    from outrigger_testenv import campaign

    package = requests.trees_package(directory / "package")
    table = campaign.generate(rows)
    written = pd.concat([table.customers, table.sent.set_axis(table.customers.index)], axis=1)
    written.to_csv(directory / "rows.csv", index_label="user")
    command = [program, "batch", "run", "--input", "rows.csv", "--to", "scored"]
    command += ["--package", package.directory, "--output-format", "jsonl"]
    counter = Meter(directory / "counts")
    return counter.run(command, cwd=directory), counter


def pushed_tag(program: Path, directory: Path) -> Counted:
    """A pushed tag: what it costs beyond an equally long time without one."""
    quiet, busy = [], []
    with _tag_stack(program, directory) as (counter, push):
        # Later ones use what the first one has fetched.
        push()
        for _ in range(_TAGS):
            counter.read()
            time.sleep(_WINDOW)
            quiet.append(counter.read())
            push()
            busy.append(counter.read())
    return {"pushed-tag": median(busy) - median(quiet)}


@contextmanager
def _tag_stack(program: Path, directory: Path) -> Iterator[tuple[Meter, Callable[[], None]]]:
    """A stack with a model, and a function that pushes another version of it and waits until that
    is served.
    """
    from outrigger_testenv import variants

    first, *later = variants.versions(directory / "packages", range(1, _TAGS + 3))
    images = {"images": {"poll_interval": f"{_POLL}s"}}
    stack = Stack(images, [{"name": "tiny"}], start=False)
    left = iter(later)

    def push() -> None:
        stack.push(next(left), "tiny")
        time.sleep(_WINDOW)

    with stack, _watched(stack, program, directory, {"tiny": first}) as counter:
        digest = stack.client().serving_digest("tiny")
        yield counter, push
        if stack.client().serving_digest("tiny") == digest:
            raise RuntimeError("no pushed tag is served")


def idle_minute(program: Path, directory: Path) -> Counted:
    """A minute without requests."""
    from outrigger_testenv import variants

    packages = variants.versions(directory / "packages", range(1, _MODELS + 1))
    served = {f"model-{at}": package for at, package in enumerate(packages)}
    stack = Stack(_DEFAULT, [{"name": name} for name in served], start=False)
    with stack, _watched(stack, program, directory, served) as counter:
        time.sleep(_SETTLED)
        counter.read()
        time.sleep(_IDLE)
        return {"idle-minute": counter.read()}


PARTS: dict[str, Callable[[Path, Path], Counted]] = {
    "idle-minute": idle_minute,
    "through-engine": through_engine,
    "of-trees": of_trees,
    "batch-row": batch_row,
    "pushed-tag": pushed_tag,
}
"""The parts; that which mostly waits comes first."""

NAMES = {
    "idle-minute": ["idle-minute"],
    "through-engine": [each.name for each in requests.THROUGH_ENGINE],
    "of-trees": [each.name for each in requests.OF_TREES],
    "batch-row": ["batch-row"],
    "pushed-tag": ["pushed-tag"],
}
"""The names that each part counts."""


@contextmanager
def _watched(
    stack: Stack, program: Path, directory: Path, packages: Mapping[str, Any]
) -> Iterator[Meter]:
    """Starts the stack with this control plane, which has loaded the packages."""
    counter = Meter(directory / "counts")
    stack.serve.use(program)
    counter.watch(stack.serve.process)
    if stack.registry is not None:
        stack.registry.start()
    for name, package in packages.items():
        stack.push(package, name)
    if stack.engine is not None:
        stack.engine.start()
    stack.serve.write_config()
    stack.serve.process.start()
    stack.serve.process.wait_until(lambda: stack.serve.get("/readyz")[0] == 200, _STARTED)
    client = stack.client(timeout=_STARTED)
    for model in stack.serve.config["models"]:
        client.load(model["name"])
    counter.begin(stack.serve.process)
    yield counter


def _listeners(stack: Stack) -> dict[str, str]:
    return {name: str(address) for name, address in stack.serve.config["server"].items()}


def _each(every: Sequence[requests.Request], stack: Stack, counter: Meter) -> Counted:
    counted = {}
    for request in every:
        with request.sender(_listeners(stack)) as send:
            for _ in range(_WARM):
                send()
            counted[request.name] = counter.slope(send, request.count)
    return counted


def walk(name: str, program: Path, directory: Path) -> set[tuple[str, str]]:
    """The functions that run in what has this name, each with the path of its file."""
    if name == "batch-row":
        return _batch(program, directory, _ROWS)[1].ran
    if name == "pushed-tag":
        with _tag_stack(program, directory) as (counter, push):
            counter.read()
            push()
            counter.read()
            return counter.ran
    through_engine = name in NAMES["through-engine"]
    start, every = (
        (_engine_stack, requests.THROUGH_ENGINE)
        if through_engine
        else (_trees_stack, requests.OF_TREES)
    )
    (request,) = (each for each in every if each.name == name)
    with start(program, directory) as (stack, counter), request.sender(_listeners(stack)) as send:
        for _ in range(_WARM):
            send()
        counter.read()
        send()
        counter.read()
        return counter.ran


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--processor", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.processor})
    with tempfile.TemporaryDirectory(prefix="cost-") as directory:
        program = meter.without_lines(options.program, Path(directory) / "program")
        counted = PARTS[options.part](program, Path(directory))
    options.output.write_text(
        json.dumps({name: asdict(counts) for name, counts in counted.items()})
    )


if __name__ == "__main__":
    main()
