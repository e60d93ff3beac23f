"""Scores the rows of a Parquet file with Ray Data, whose tasks call a model over HTTP.

Arguments: the address, the model, the file of rows, the directory of the output, and the rows of a
request. Tensors are binary, and each process keeps its connection.
"""

import http.client
import json
import sys

import numpy as np
import pyarrow as pa

HEADER = "Inference-Header-Content-Length"
# The processes that send requests.
ACTORS = 2


class Scorer:
    """A connection to the model."""

    def __init__(self, address, model):
        self.connection = http.client.HTTPConnection(address)
        self.path = f"/v2/models/{model}/infer"

    def __call__(self, batch):
        x = batch.column("x").combine_chunks()
        values = x.flatten().to_numpy()
        data = values.tobytes()
        tensor = {"name": "x", "datatype": "FP32", "shape": [len(x), len(values) // len(x)]}
        tensor["parameters"] = {"binary_data_size": len(data)}
        outputs = [{"name": "OUT_x", "parameters": {"binary_data": True}}]
        head = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
        headers = {HEADER: str(len(head)), "Content-Type": "application/octet-stream"}
        self.connection.request("POST", self.path, head + data, headers)
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(body.decode(errors="replace"))
        head = json.loads(body[: int(answer.headers[HEADER])])
        shape = head["outputs"][0]["shape"]
        numbers = np.frombuffer(body, np.float32, shape[0] * shape[1], int(answer.headers[HEADER]))
        offsets = np.arange(0, numbers.size + 1, shape[1], dtype=np.int32)
        scores = pa.ListArray.from_arrays(offsets, numbers)
        return pa.table({"id": batch.column("id"), "OUT_x": scores})


def main(address, model, source, target, rows):
    # Imported here, because its processes import this file too.
    import ray

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    scored = ray.data.read_parquet(source).map_batches(
        Scorer,
        fn_constructor_args=(address, model),
        batch_size=int(rows),
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=ACTORS),
        # Half a processor each leaves the other for reading and writing.
        num_cpus=0.5,
    )
    scored.write_parquet(target)
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
