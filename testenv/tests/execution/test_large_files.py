"""Stage 3, execution: the memory of a validation does not grow with its file."""

import json
import shutil

import pandas as pd
import pytest

from outrigger_testenv import variants
from outrigger_testenv.attack.case import MIB
from outrigger_testenv.attack.memory import Peak
from outrigger_testenv.binary import outrigger
from outrigger_testenv.client import Client
from outrigger_testenv.processes import Process
from outrigger_testenv.stack import Stack, library

NAME = "large"
SMALL, LARGE = 4 * MIB, 200 * MIB
# The most by which the peak may grow: a part of the file, and 64 bytes for each of its rows.
BOUND = 32 * MIB
# The least that the server may have.
POD = "256MiB"
USERS, OFFERS = 2, 50
# A row takes about this many bytes, most of them in a column that the model does not name.
ROW = 400
FORMATS = ["csv", "parquet"]
each_format = pytest.mark.parametrize("ending", FORMATS)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return variants.tiny(tmp_path_factory.mktemp("tiny"), 3)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A directory with a small and a large file of each format, and their numbers of rows."""
    directory, counts = tmp_path_factory.mktemp("files"), {}
    frame = rows()
    for ending in FORMATS:
        for name, size in (("small", SMALL), ("large", LARGE)):
            file = f"{name}.{ending}"
            counts[file] = len(frame) * WRITERS[ending](directory / file, frame, size)
            assert (directory / file).stat().st_size > 0.9 * size
    yield directory, counts
    # Pytest would keep them for three runs.
    shutil.rmtree(directory)


def rows():
    """The rows of two users, which files repeat."""
    count = USERS * OFFERS
    return pd.DataFrame(
        {
            "user": [f"user-{at // OFFERS}" for at in range(count)],
            "treatment": [f"treatment-{at % OFFERS}" for at in range(count)],
            "age": [30.5] * count,
            "price": [float(at % OFFERS) for at in range(count)],
            "expected": [3.0] * count,
            "note": [f"{at:0{ROW - 40}}" for at in range(count)],
        }
    )


def write_csv(path, frame, size):
    """Writes a file of about that size; returns the number of repetitions."""
    text = frame.to_csv(index=False)
    header, _, body = text.partition("\n")
    times = size // len(body)
    with path.open("w") as file:
        file.write(f"{header}\n")
        for _ in range(times):
            file.write(body)
    return times


def write_parquet(path, frame, size):
    """Writes a file of about that size, in groups of 10,000 rows; returns the number of
    repetitions.
    """
    import pyarrow
    from pyarrow import parquet

    group = 10_000 // len(frame)
    table = pyarrow.Table.from_pandas(pd.concat([frame] * group), preserve_index=False)
    groups = max(1, size // (ROW * len(table)))
    how = {"compression": "none", "use_dictionary": False}
    with parquet.ParquetWriter(path, table.schema, **how) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return groups * group


WRITERS = {"csv": write_csv, "parquet": write_parquet}


@each_format
def test_the_memory_of_the_command_does_not_grow_with_the_file(package, files, tmp_path, ending):
    directory, counts = files
    peaks = {}
    for name in (f"small.{ending}", f"large.{ending}"):
        command = [outrigger(), "validate", package.directory, "--input", directory / name]
        command += ["--scores", directory / f"scores-command-{name}", "-o", "json"]
        process = Process("validate", command, tmp_path / f"{name}.log", library())
        process.start()
        with Peak(process) as peak:
            process.wait_until_ended(timeout=300)
        assert process.exit_code == 0, process.tail()
        report = json.loads(process.log.read_text())["rows"]
        assert report["scored"] == report["agreement"]["compared"] == counts[name]
        peaks[name] = peak.bytes
    small, large = peaks.values()
    print(f"\n  peak: {small // MIB} MiB, {large // MIB} MiB")
    assert 0 < large < small + BOUND, peaks


@pytest.fixture(scope="module")
def pod(package, files):
    """A server with little memory that validates files and serves the model."""
    overrides = {"server": {"memory": POD}, "validation": {"directory": str(files[0])}}
    with Stack(overrides=overrides) as running:
        running.push(package, NAME)
        running.client().load(NAME)
        yield running


@each_format
def test_the_memory_of_the_pod_does_not_grow_with_the_file(files, pod, ending):
    counts, peaks = files[1], {}
    token = pod.serve.token.read_text().strip()
    for name in (f"small.{ending}", f"large.{ending}"):
        with Client(pod.serve.admin) as client, Peak(pod.serve.process) as peak:
            report = client.score_file(NAME, name, f"scores-pod-{name}", token=token)
        assert report.passed, report
        assert report.scored == report.agreement.compared == counts[name]
        peaks[name] = peak.bytes
    small, large = peaks.values()
    print(f"\n  peak: {small // MIB} MiB, {large // MIB} MiB")
    assert 0 < large < small + BOUND, peaks
