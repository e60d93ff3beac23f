"""An engine without a control plane, which serves models from directories.

Importing this takes seconds, since it imports TensorFlow.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import tensorflow as tf

from outrigger_testenv.bench.setup import THREADS
from outrigger_testenv.conformance.client import Config, EngineClient, finished
from outrigger_testenv.processes import Process
from outrigger_testenv.stack import Engine


@contextmanager
def serving(
    directory: Path, models: Mapping[str, Path], batching: str | None = None
) -> Iterator[tuple[Engine, EngineClient]]:
    """An engine that serves each model from its base path, and a connection to it. `batching` is
    that of `Engine`. Raises RuntimeError if a model is not served.
    """
    engine = Engine(directory, directory.with_suffix(".log"), THREADS, batching)
    client = EngineClient(engine.endpoint)
    config = Config()
    for name, base_path in models.items():
        model = config.model_config_list.config.add(name=name, base_path=str(base_path))
        model.model_platform = "tensorflow"
    try:
        engine.start()
        if (loaded := finished(client.reload(config))) != "OK":
            raise RuntimeError(f"the engine does not serve {', '.join(models)}: {loaded}")
        yield engine, client
    finally:
        client.close()
        engine.process.kill()


def output(call: grpc.Future) -> np.ndarray:
    """The values of the only output of a Predict call, in one dimension. Raises grpc.RpcError."""
    (tensor,) = call.result().outputs.values()
    return tf.make_ndarray(tensor).ravel()


def pid(process: Process) -> int:
    """The id of a process. Raises RuntimeError if it has ended."""
    if process.pid is None:
        raise RuntimeError(f"{process.name} has ended{process.tail()}")
    return process.pid
