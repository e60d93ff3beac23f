"""The output of a finished job, or of its compaction: the manifest and its Parquet files."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from outrigger_delta.errors import Failed, SettingsError, message
from outrigger_delta.place import Place

MANIFEST = "manifest.json"
DATA = "data"
# Plans of a job and of a compaction, which are there before the manifest.
_PLANS = ("plan.json", "compaction.json")
# A manifest has about 600 bytes for each chunk; a larger one than this is none.
_LARGEST_MANIFEST = 1 << 28
_NAME = re.compile(rf"{DATA}/[A-Za-z0-9][A-Za-z0-9._-]*")
# Files whose ends are read at the same time, each of which is some requests to a store.
_OPEN = 8
# The bytes of the rows that are read at a time, and the most rows.
_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 8192


@dataclass(frozen=True)
class OutputFile:
    """A file of the manifest. `size` is in bytes."""

    name: str
    size: int
    rows: int


@dataclass(frozen=True)
class Output:
    """A finished output: the name of the job, and its files in the order of the rows."""

    place: Place
    root: fs.FileSystem
    job: str
    files: tuple[OutputFile, ...]

    @classmethod
    def read(cls, place: Place) -> "Output":
        """The output at a place. Raises SettingsError if there is no finished one."""
        root = place.files()
        content = _read(place, root, MANIFEST)
        if content is None:
            if _has_plan(place, root):
                raise SettingsError(f"{place} is not finished: there is no {MANIFEST}")
            raise SettingsError(f"{place} is not the output of a job: there is no {MANIFEST}")
        try:
            job, files = _parse(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(f"{place.below(MANIFEST)} cannot be read: {error!r}") from None
        return cls(place, root, job, files)

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files)

    def check(self) -> list[pq.FileMetaData]:
        """The ends of all files, of which there is at least one. Raises Failed if a file is
        missing, has another size or number of rows than in the manifest, or other columns than
        the first one.
        """
        with ThreadPoolExecutor(_OPEN) as threads:
            found = list(threads.map(self._checked, self.files))
        first = found[0].schema.to_arrow_schema()
        for file, metadata in zip(self.files, found, strict=True):
            if not metadata.schema.to_arrow_schema().equals(first):
                raise Failed(f"{self._path(file)} has other columns than {self.files[0].name}")
        return found

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows in their order, as columns of these names and types, about 8 MiB at a time.
        Raises Failed if a value does not fit into its type, or a file cannot be read.
        """
        for file in self.files:
            try:
                with self._open(file) as opened:
                    for batch in opened.iter_batches(_batch_rows(opened.metadata)):
                        yield batch.select(schema.names).cast(schema)
            except (OSError, pa.ArrowException) as error:
                raise Failed(f"{self._path(file)}: {message(error)}") from None

    def _checked(self, file: OutputFile) -> pq.FileMetaData:
        size = _size(self.place, self.root, file.name)
        if size is None:
            raise Failed(f"{self._path(file)} is missing, and the manifest names it")
        if size != file.size:
            raise Failed(
                f"{self._path(file)} was changed: it has {size} bytes, and {file.size} in the "
                "manifest"
            )
        try:
            with self._open(file) as opened:
                metadata = opened.metadata
        except (OSError, pa.ArrowException) as error:
            raise Failed(f"{self._path(file)}: {message(error)}") from None
        if metadata.num_rows != file.rows:
            raise Failed(
                f"{self._path(file)} was changed: it has {metadata.num_rows} rows, and "
                f"{file.rows} in the manifest"
            )
        return metadata

    def _open(self, file: OutputFile) -> pq.ParquetFile:
        # Without a read ahead, which would take the memory of whole row groups.
        source = self.root.open_input_file(file.name)
        return pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)

    def _path(self, file: OutputFile) -> Place:
        return self.place.below(file.name)


def is_job(place: Place) -> bool:
    """True if a place is the output of a job or of a compaction, finished or not. Raises Failed."""
    try:
        return _has_plan(place, place.files())
    except SettingsError:
        return False


def _has_plan(place: Place, root: fs.FileSystem) -> bool:
    return any(_size(place, root, plan) is not None for plan in _PLANS)


def _parse(manifest: dict[str, Any]) -> tuple[str, tuple[OutputFile, ...]]:
    """The name of the job, and the files with rows. Raises ValueError, KeyError, TypeError or
    AttributeError for another document, and SettingsError for another format of files.
    """
    if "chunks" in manifest:
        job = manifest["job"]
        chunks = [chunk for chunk in manifest["chunks"] if chunk["data"]]
        described = [(chunk["data"], chunk["scored"]) for chunk in chunks]
    else:
        job = manifest["source"]["job"]
        described = [(file, file["rows"]) for file in manifest["files"]]
    files = tuple(OutputFile(file["name"], file["bytes"], rows) for file, rows in described)
    if not isinstance(job, str) or not job:
        raise ValueError("the job has no name")
    for file in files:
        if not _NAME.fullmatch(file.name):
            raise ValueError(f"{file.name!r} is not the name of a file with rows")
        if not (isinstance(file.size, int) and isinstance(file.rows, int)):
            raise TypeError(f"{file.name} has no size")
        if not file.name.endswith(".parquet"):
            raise SettingsError(f"{file.name} is not Parquet, of which alone tables are made")
    return job, files


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """The rows of a file that have about _BATCH_BYTES."""
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * metadata.num_rows // max(1, size)))


def _size(place: Place, root: fs.FileSystem, name: str) -> int | None:
    """The size of a file in bytes; None if there is none. Raises Failed."""
    try:
        (info,) = root.get_file_info([name])
    except OSError as error:
        raise Failed(f"{place.below(name)}: {message(error)}") from None
    return info.size if info.type == fs.FileType.File else None


def _read(place: Place, root: fs.FileSystem, name: str) -> bytes | None:
    """The content of a file; None if there is none. Raises Failed."""
    size = _size(place, root, name)
    if size is None:
        return None
    if size > _LARGEST_MANIFEST:
        raise Failed(
            f"{place.below(name)} has {size} bytes, and at most {_LARGEST_MANIFEST} are read"
        )
    try:
        with root.open_input_file(name) as file:
            return file.read()
    except OSError as error:
        raise Failed(f"{place.below(name)}: {message(error)}") from None
