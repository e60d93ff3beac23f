"""The rows of batch jobs of an identity model, and the check of their output."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

# The rows that differ from each other, which are also those of a row group.
_DISTINCT = 1 << 16


@dataclass(frozen=True)
class Rows:
    """Rows with an `id` from 0, and `x`: `width` numbers."""

    count: int
    width: int

    def write(self, file: Path) -> Path:
        """Writes them to a Parquet file; returns it."""
        x = pa.list_(pa.float32())
        schema = pa.schema([("id", pa.int64()), ("x", x)])
        values = self.values()
        with pq.ParquetWriter(file, schema, use_dictionary=False) as writer:
            for start in range(0, self.count, _DISTINCT):
                ids = np.arange(start, min(start + _DISTINCT, self.count))
                numbers = values[: len(ids)].ravel()
                offsets = np.arange(0, len(numbers) + 1, self.width, dtype="i4")
                lists = pa.ListArray.from_arrays(offsets, numbers, type=x)
                writer.write_table(pa.table([pa.array(ids), lists], schema=schema))
        return file

    def values(self) -> np.ndarray:
        """The numbers of the rows that differ; those of the others follow in the same order."""
        shape = (min(self.count, _DISTINCT), self.width)
        return np.random.default_rng(self.width).normal(size=shape).astype("f4")

    def wrong(self, output: Path | str, column: str, files: fs.FileSystem | None = None) -> int:
        """The rows of a finished job that are dead, lost, doubled, at another place or not equal to
        those of the input in this column. `output` is a place in `files`, usually the local ones.
        """
        values, last, found, bad = self.values(), -1, 0, 0
        for table in _tables(files or fs.LocalFileSystem(), str(output)):
            ids, scores = table["id"].to_numpy(), table[column].combine_chunks().flatten()
            in_order = np.diff(ids, prepend=last) > 0
            if len(scores) == len(ids) * self.width:
                numbers = scores.to_numpy().reshape(-1, self.width)
                same = (numbers == values[ids % len(values)]).all(axis=1)
                bad += int((~(same & in_order)).sum())
            else:
                bad += len(ids)
            last, found = ids[-1], found + len(ids)
        return bad + abs(self.count - found)


def _tables(files: fs.FileSystem, output: str) -> Iterator[pa.Table]:
    """The output of a finished job, file by file in its order."""
    with files.open_input_stream(f"{output}/manifest.json") as opened:
        manifest = json.loads(opened.read())
    for chunk in manifest["chunks"]:
        if chunk["data"]:
            with files.open_input_file(f"{output}/{chunk['data']['name']}") as opened:
                yield pq.read_table(opened)
