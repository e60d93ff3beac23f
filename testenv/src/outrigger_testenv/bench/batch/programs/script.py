"""Scores the rows of a Parquet file with Triton's asynchronous client over gRPC.

Arguments: the address, the model, the file of rows, the file of the output, and the rows of a
request. Requests are concurrent, contents are raw, and files are read and written on threads of
their own, in the order of the input.
"""

import asyncio
import sys
from collections import deque

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tritonclient.grpc.aio as grpcclient

IN_FLIGHT = 16
# The requests whose rows are written at a time, and the rows that are read at a time.
WRITTEN, READ = 256, 1 << 16


class Writer:
    """Writes answers with the ids of their rows."""

    def __init__(self, path):
        self.path, self.file = path, None
        self.ids, self.values = [], []

    async def add(self, ids, values):
        self.ids.append(ids)
        self.values.append(values)
        if len(self.ids) == WRITTEN:
            await self.flush()

    async def flush(self):
        if self.ids:
            ids, values = self.ids, self.values
            self.ids, self.values = [], []
            await asyncio.to_thread(self.write, ids, values)

    def write(self, ids, values):
        numbers = np.concatenate(values)
        width = numbers.shape[1]
        offsets = np.arange(0, numbers.size + 1, width, dtype=np.int32)
        table = pa.table(
            {
                "id": pa.concat_arrays(ids),
                "OUT_x": pa.ListArray.from_arrays(offsets, numbers.ravel()),
            }
        )
        if self.file is None:
            self.file = pq.ParquetWriter(self.path, table.schema, use_dictionary=False)
        self.file.write_table(table)


async def main(address, model, source, target, rows):
    client = grpcclient.InferenceServerClient(address)

    async def scored(x):
        values = x.flatten().to_numpy().reshape(len(x), -1)
        tensor = grpcclient.InferInput("x", values.shape, "FP32")
        tensor.set_data_from_numpy(values)
        result = await client.infer(model, [tensor])
        return result.as_numpy("OUT_x")

    batches = pq.ParquetFile(source).iter_batches(READ)
    writer, running = Writer(target), deque()

    async def finish(most):
        while len(running) > most:
            ids, answer = running.popleft()
            await writer.add(ids, await answer)

    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        ids, x = batch.column("id"), batch.column("x")
        for start in range(0, batch.num_rows, int(rows)):
            await finish(IN_FLIGHT - 1)
            request = asyncio.create_task(scored(x.slice(start, int(rows))))
            running.append((ids.slice(start, int(rows)), request))
    await finish(0)
    await writer.flush()
    writer.file.close()
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
