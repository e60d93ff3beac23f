"""`outrigger-delta` with the real client of Delta Lake, on directories."""

import contextlib
import io
import json
import os
import signal
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outrigger_testenv import delta

ROUNDS = 25


@pytest.fixture(autouse=True)
def _installed():
    delta.needs_delta()


@pytest.fixture
def output(tmp_path):
    """The output of a job with three files."""
    return _output(tmp_path / "scored", range(30))


def _output(directory, ids, job="job-1"):
    size = -(-len(ids) // 3)
    parts = [ids[start : start + size] for start in range(0, len(ids), size)]
    return delta.write_output(directory, [delta.rows(part) for part in parts], job)


def _run(*arguments):
    """The exit code, the output and the errors of the command in this process."""
    from outrigger_delta.command import main

    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main([str(argument) for argument in arguments])
    return code, output.getvalue(), errors.getvalue()


def _append(*arguments):
    code, output, errors = _run(*arguments, "-o", "json")
    assert code == 0, errors
    return json.loads(output)


def _table(place):
    from deltalake import DeltaTable

    return DeltaTable(place)


def _rows(place):
    """The rows of a table in the order of their keys."""
    return _table(place).to_pyarrow_table().sort_by("id").combine_chunks().to_pylist()


def _is_table(place):
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(str(place))


@pytest.mark.parametrize("place", ["table", "scored/data"])
def test_a_job_is_in_the_table_once(output, tmp_path, place):
    table = tmp_path / place
    before = {path.name for path in (output / "data").iterdir()}
    first, second = _append(output, table), _append(output, table)
    assert (first["is_new"], first["rows"], first["version"]) == (True, 30, 0)
    assert (second["is_new"], second["version"]) == (False, 0)
    assert _rows(table) == delta.rows(range(30)).to_pylist()
    assert _table(table).transaction_version("job-1") == 1
    if place == "table":
        assert first["is_copied"]
        assert {path.name for path in (output / "data").iterdir()} == before
    else:
        # No other file than those of the job, and each is used.
        assert not first["is_copied"]
        assert {path.name for path in table.iterdir()} == before | {"_delta_log"}
        assert {os.path.basename(path) for path in _table(table).file_uris()} == before


def test_a_table_takes_the_rows_of_several_jobs(output, tmp_path):
    other = _output(tmp_path / "other", range(100, 105), job="job-2")
    for place, version in [(output, 0), (other, 1), (output, 1)]:
        assert _append(place, tmp_path / "table")["version"] == version
    expected = delta.rows([*range(30), *range(100, 105)]).to_pylist()
    assert _rows(tmp_path / "table") == expected


def test_a_compaction_is_the_same_job(output, tmp_path):
    compacted = tmp_path / "large"
    (compacted / "data").mkdir(parents=True)
    pq.write_table(delta.rows(range(30)), compacted / "data/0.parquet")
    size = (compacted / "data/0.parquet").stat().st_size
    files = [{"name": "data/0.parquet", "bytes": size, "rows": 30}]
    manifest = {"source": {"job": "job-1"}, "files": files}
    (compacted / "manifest.json").write_text(json.dumps(manifest))
    assert _append(compacted, tmp_path / "table")["is_new"]
    assert not _append(output, tmp_path / "table")["is_new"]
    assert not _append(compacted, compacted / "data")["is_copied"]
    assert _rows(tmp_path / "table") == _rows(compacted / "data")


def test_the_tables_own_partitions_and_order_of_columns(output, tmp_path):
    from deltalake import write_deltalake

    old = delta.rows([1000]).append_column("x", pa.array(["a"])).select(["x", "score", "id"])
    write_deltalake(tmp_path / "table", old, partition_by=["x"])
    new = (
        delta.rows(range(6)).append_column("x", pa.array(list("abcabc"))).drop_columns("embedding")
    )
    job = delta.write_output(tmp_path / "job", [new], "job-2")
    _append(job, tmp_path / "table")
    found = _table(tmp_path / "table").to_pyarrow_table().sort_by("id").select(new.column_names)
    assert found.to_pylist()[:-1] == new.to_pylist()
    assert _table(tmp_path / "table").metadata().partition_columns == ["x"]


def test_unused_files_can_be_removed_and_the_job_remains(output):
    table = output / "data"
    _append(output, table)
    (table / "00000000-lost.parquet").write_bytes(b"an attempt that lost")
    before = {path.name for path in output.rglob("*") if path.is_file()}
    removed = _table(table).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
    )
    after = {path.name for path in output.rglob("*") if path.is_file()}
    assert removed == ["00000000-lost.parquet"]
    assert before - after == {"00000000-lost.parquet"}
    assert _rows(table) == delta.rows(range(30)).to_pylist()


@pytest.mark.parametrize("kind", ["new", "existing", "own"])
def test_processes_that_append_one_job_at_once(output, tmp_path, kind):
    from deltalake import write_deltalake

    rounds, old = [], 0
    for number in range(ROUNDS):
        table = tmp_path / f"table-{number}"
        if kind == "existing":
            write_deltalake(table, delta.rows([1000]))
            old = 1
        elif kind == "own":
            place = _output(tmp_path / f"job-{number}", range(30))
            rounds.append([(str(place), str(place / "data"))] * 3)
            continue
        rounds.append([(str(output), str(table))] * 3)
    for ends in delta.at_once(rounds):
        assert sum(ends) == 1, ends
    for (_, table), *_ in rounds:
        assert len(_rows(table)) == 30 + old
        assert _table(table).version() == old


def test_processes_that_append_different_jobs_at_once(tmp_path):
    outputs = [
        _output(tmp_path / f"job-{each}", range(each * 10, each * 10 + 10), f"job-{each}")
        for each in range(3)
    ]
    tables = [tmp_path / f"table-{number}" for number in range(ROUNDS)]
    ends = delta.at_once([[(str(job), str(table)) for job in outputs] for table in tables])
    assert ends == [[True] * 3] * ROUNDS
    for table in tables:
        assert _rows(table) == delta.rows(range(30)).to_pylist()


@pytest.mark.parametrize("event", ["file", "log"])
@pytest.mark.parametrize("kind", ["new", "existing"])
def test_a_process_that_is_killed_leaves_the_table_as_it_was(tmp_path, kind, event):
    from deltalake import write_deltalake

    output = _output(tmp_path / "scored", range(60_000))
    table, old = tmp_path / "table", []
    if kind == "existing":
        old = [1_000_000]
        write_deltalake(table, delta.rows(old))
    before = _contents(table)
    process = subprocess.Popen([*delta.COMMAND, output, table], stdout=subprocess.DEVNULL)
    # The first new name is that of a file with rows, or of a commit.
    while process.poll() is None and not _has_new(_contents(table) - before, event):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    is_there = _is_table(table)
    if is_there:
        assert len(_rows(table)) in (len(old), len(old) + 60_000)
    assert is_there or not old
    _append(output, table)
    assert _rows(table) == delta.rows([*range(60_000), *old]).to_pylist()


def _contents(table):
    return {path for path in table.rglob("*") if path.is_file()}


def _has_new(paths, event):
    return any(("_delta_log" in path.parts) == (event == "log") for path in paths)


def _refused(code, text, *arguments):
    """The command ends with this code and message."""
    found, _, errors = _run(*arguments)
    assert (found, text in errors, errors.count("\n")) == (code, True, 1), errors


def test_places_that_are_refused(output, tmp_path):
    table = tmp_path / "table"
    _refused(64, "no such directory", tmp_path / "none", table)
    _refused(64, "cannot be the table", output, output)
    _refused(64, "cannot be the table", output, tmp_path)
    _refused(64, "cannot be the table", output, output / "data" / "table")
    other = _output(tmp_path / "other", range(3), "job-2")
    _refused(64, "files of a job", output, other / "data")
    _refused(64, "per cent sign", output, tmp_path / "a%20b")
    _refused(64, "credentials", output, "s3://key:secret@bucket/table")
    _refused(64, "bucket", output, "s3://")
    _refused(64, "begins with one of", output, "ftp://host/table")
    _refused(64, "not a directory", output, output / "manifest.json")
    _refused(64, "TABLE", output)
    assert not table.exists() and not (output / "_delta_log").exists()


def test_outputs_that_are_refused(output, tmp_path):
    manifest, table = output / "manifest.json", tmp_path / "table"
    good = json.loads(manifest.read_text())
    manifest.unlink()
    _refused(64, "is not finished", output, table)
    (output / "plan.json").rename(output / "other.json")
    _refused(64, "is not the output of a job", output, table)
    for text in ["", "[]", '{"chunks": 3}', '{"job": "", "chunks": []}', '{"files": []}']:
        manifest.write_text(text)
        _refused(64, "cannot be read", output, table)
    for name, problem in [
        ("../secret.parquet", "not the name"),
        ("data/a/b.parquet", "not the name"),
        ("data/1.jsonl", "not Parquet"),
    ]:
        good["chunks"][0]["data"]["name"] = name
        manifest.write_text(json.dumps(good))
        _refused(64, problem, output, table)
    assert not table.exists()


@pytest.mark.parametrize("place", ["table", "scored/data"])
def test_files_that_are_not_those_of_the_manifest(output, tmp_path, place):
    table = tmp_path / place
    (_, file, _) = sorted((output / "data").iterdir())
    content = file.read_bytes()
    file.unlink()
    _refused(1, "is missing", output, table)
    file.write_bytes(content[:-1])
    _refused(1, "was changed", output, table)
    file.write_bytes(bytes(len(content)))
    _refused(1, file.name, output, table)
    pq.write_table(delta.rows(range(11)), file)
    _describe(output, file)
    _refused(1, "rows", output, table)
    pq.write_table(delta.rows(range(10)).rename_columns(["id", "score", "other"]), file)
    _describe(output, file)
    _refused(1, "other columns", output, table)
    assert not _is_table(table)
    assert place == "scored/data" or not table.exists()


def _describe(output, file):
    """Puts the size of a file into the manifest."""
    manifest = json.loads((output / "manifest.json").read_text())
    manifest["chunks"][1]["data"]["bytes"] = file.stat().st_size
    (output / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["id", "score"], "the table has no column embedding"),
        (["id", "score", "embedding", "more"], "the output has no column more"),
        (["id", "score", "embedding"], "score is float in the output and string in the table"),
    ],
)
def test_a_table_with_other_columns_is_refused(output, tmp_path, columns, problem):
    from deltalake import write_deltalake

    old = delta.rows([1]).append_column("more", pa.array([1]))
    if len(columns) == 3:
        old = old.set_column(1, "score", pa.array(["high"]))
    write_deltalake(tmp_path / "table", old.select(columns))
    _refused(64, problem, output, tmp_path / "table")
    assert len(_rows(tmp_path / "table")) == 1


def test_values_that_the_table_refuses(output, tmp_path):
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "table", delta.rows([1000]))
    _table(tmp_path / "table").alter.add_constraint({"large": "id > 20"})
    _refused(1, "validation", output, tmp_path / "table")
    assert len(_rows(tmp_path / "table")) == 1


def test_a_table_of_another_program_over_the_files_is_refused(output):
    from deltalake import convert_to_deltalake

    convert_to_deltalake(output / "data")
    _refused(64, "which another program has made", output, output / "data")


def test_rows_that_are_too_large_to_copy(output, tmp_path, monkeypatch):
    import outrigger_delta.table

    # Rows of some dozen bytes, in place of many of a MiB.
    monkeypatch.setattr(outrigger_delta.table, "_MOST_GATHERED", 100)
    _refused(64, "too large to be copied", output, tmp_path / "table")
    assert not (tmp_path / "table").exists()
    assert _append(output, output / "data")["is_new"]


def test_a_job_without_rows(tmp_path):
    output = delta.write_output(tmp_path / "scored", [])
    appended = _append(output, tmp_path / "table")
    assert (appended["is_new"], appended["rows"], appended["version"]) == (False, 0, None)
    assert not (tmp_path / "table").exists()
