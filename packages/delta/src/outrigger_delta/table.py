"""Appends an output to a table in one commit, which has the job's name as its application
transaction (`txn` with `appId` and `version`).

The client of Delta Lake refuses a commit if, since the version of the table that the writer has
read, another commit had a transaction of the same application. It does not look at the version
that was read itself. So each try opens the table, looks for the job in it, and commits on that
version. A new table is made by its first commit, which is refused if there is a table by then; the
client's own retries would append to it, so they are off.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import (
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError
from deltalake.transaction import create_table_with_add_actions

from outrigger_delta.actions import add_actions
from outrigger_delta.columns import delta_schema, difference, first_converted
from outrigger_delta.errors import Failed, SettingsError, message
from outrigger_delta.output import DATA, Output, is_job
from outrigger_delta.place import Place

# A job is appended once, so there is one version of it.
_VERSION = 1
# Tries of an append while other writers commit. Each copies the rows.
_TRIES = 3
# The bytes of the rows of a row group that is written.
_GROUP_BYTES = 64 << 20
# The client gathers so many rows on each processor before it writes them, however large they are.
# With 1 MiB a row it took 3.5 times their bytes (deltalake 1.6.6).
_GATHERED_ROWS = 8192
_MOST_GATHERED = 512 << 20


@dataclass(frozen=True)
class Appended:
    """The end of an append. `is_new` is False if the job was in the table already, or has no rows.
    `version` is that of the table as it is now, None if there is none.
    """

    job: str
    table: str
    rows: int
    files: int
    is_new: bool
    is_copied: bool
    version: int | None


def append(output: str, table: str) -> Appended:
    """Appends the rows of the finished job at `output` to the table at `table`, unless they are in
    it, and makes the table if there is none. Both are directories or addresses of stores. If
    `table` is the directory `data` of the output, its files become those of the table, and are not
    copied. Raises SettingsError and Failed; the table is then as it was.
    """
    source, target = Place.parse(output), Place.parse(table)
    is_copied = _is_copied(source, target)
    finished = Output.read(source)
    try:
        return _append(finished, target, is_copied)
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise Failed(f"{target}: {message(error)}") from error


def _is_copied(source: Place, target: Place) -> bool:
    """False if the table is made of the output's own files. Raises SettingsError, and Failed if
    a store does not answer.
    """
    if target == source.below(DATA):
        return False
    if target.holds(source) or source.holds(target):
        raise SettingsError(
            f"{target} cannot be the table, because removing its unused files would remove files "
            f"of the job: name {source.below(DATA)}, whose files are not copied, or another place"
        )
    if is_job(target) or is_job(target.parent):
        raise SettingsError(f"{target} cannot be the table, because it has the files of a job")
    return True


def _append(output: Output, target: Place, is_copied: bool) -> Appended:
    found = _open(target)
    for tries_left in reversed(range(_TRIES)):
        version = found and found.version()
        if _has_job(found, output) or not output.files:
            break
        try:
            version = (_copy if is_copied else _take)(output, target, found)
            return _ended(output, target, (True, is_copied, version))
        except DeltaError as error:
            # Another writer was faster, maybe with this job, or the table cannot be written.
            found = _open(target)
            is_as_it_was = (found and found.version()) == version
            if is_as_it_was or not (tries_left or _has_job(found, output)):
                raise Failed(f"{target}: {message(error)}") from error
    return _ended(output, target, (False, is_copied, found and found.version()))


def _has_job(found: DeltaTable | None, output: Output) -> bool:
    return found is not None and found.transaction_version(output.job) is not None


def _open(target: Place) -> DeltaTable | None:
    """The table; None if there is none."""
    if not DeltaTable.is_deltatable(target.location, target.options):
        return None
    return DeltaTable(target.location, storage_options=target.options)


def _ended(output: Output, target: Place, end: tuple[bool, bool, int | None]) -> Appended:
    is_new, is_copied, version = end
    rows, files = output.rows, len(output.files)
    return Appended(output.job, target.location, rows, files, is_new, is_copied, version)


def _commit(output: Output, retries: int | None) -> CommitProperties:
    transaction = Transaction(output.job, _VERSION)
    return CommitProperties(app_transactions=[transaction], max_commit_retries=retries)


def _take(output: Output, target: Place, found: DeltaTable | None) -> int:
    """Makes a table of the output's own files. Returns its version."""
    if found:
        raise SettingsError(f"{target} is a table without this job, which another program has made")
    ends = output.check()
    schema = ends[0].schema.to_arrow_schema()
    columns = delta_schema(schema)
    converted = first_converted(schema)
    if converted is not None:
        raise SettingsError(
            f"the column {converted} is {schema.field(converted).type}, which a table stores in "
            "another form: name another place for the table, to which the rows are copied"
        )
    create_table_with_add_actions(
        target.location,
        Schema.from_arrow(columns),
        add_actions(output, ends),
        mode="error",
        storage_options=target.options,
        commit_properties=_commit(output, retries=0),
    )
    return 0


def _copy(output: Output, target: Place, found: DeltaTable | None) -> int:
    """Copies the rows into the table, or into a new one. Returns its version."""
    ends = output.check()
    columns = delta_schema(ends[0].schema.to_arrow_schema())
    if found:
        _refuse_other_columns(columns, found, target)
    row_bytes = _row_bytes(output.rows, ends)
    _refuse_large_rows(output.rows, row_bytes)
    rows = _Rows(output, columns)
    group_rows = max(1, min(1 << 20, int(_GROUP_BYTES / row_bytes)))
    properties = WriterProperties(max_row_group_size=group_rows)
    try:
        if found:
            write_deltalake(
                found,
                rows.reader(),
                mode="append",
                writer_properties=properties,
                commit_properties=_commit(output, retries=None),
            )
            return found.version()
        write_deltalake(
            target.location,
            rows.reader(),
            mode="error",
            storage_options=target.options,
            writer_properties=properties,
            commit_properties=_commit(output, retries=0),
        )
        return 0
    except Exception as error:
        # The client reports an error of the rows as one of its own.
        raise rows.error or error from None


def _refuse_other_columns(columns: pa.Schema, table: DeltaTable, target: Place) -> None:
    found = pa.schema(table.schema().to_arrow())
    problem = difference(columns, found)
    if problem:
        raise SettingsError(f"{target} has other columns: {problem}")


def _row_bytes(rows: int, ends: list[pq.FileMetaData]) -> float:
    """The mean size of a row, at least 1 byte."""
    groups = (end.row_group(index) for end in ends for index in range(end.num_row_groups))
    return max(1.0, sum(group.total_byte_size for group in groups) / max(1, rows))


def _refuse_large_rows(rows: int, row_bytes: float) -> None:
    gathered = min(rows, _GATHERED_ROWS * (os.cpu_count() or 1)) * row_bytes
    if gathered > _MOST_GATHERED:
        raise SettingsError(
            f"rows of {row_bytes:,.0f} bytes are too large to be copied: the client of Delta Lake "
            f"would gather {gathered / (1 << 20):,.0f} MiB of them, and at most "
            f"{_MOST_GATHERED >> 20} MiB are allowed. Make the table of the output's own files "
            f"(its directory {DATA})"
        )


class _Rows:
    """The rows of an output as a stream. `error` is the one that has ended it. Rows are read one
    batch ahead, on a thread of their own, because the client's files cannot be read on the
    client's own threads, which take the rows.
    """

    def __init__(self, output: Output, columns: pa.Schema):
        self._output = output
        self._columns = columns
        self.error: Exception | None = None

    def reader(self) -> pa.RecordBatchReader:
        """The stream, which is read once."""
        return pa.RecordBatchReader.from_batches(self._columns, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        batches = self._output.batches(self._columns)
        try:
            with ThreadPoolExecutor(1) as thread:
                ahead = thread.submit(next, batches, None)
                while (batch := ahead.result()) is not None:
                    ahead = thread.submit(next, batches, None)
                    yield batch
        except Exception as error:
            self.error = error
            raise
