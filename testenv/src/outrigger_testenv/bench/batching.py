"""The engine's throughput with batching over that without, for a model of large layers."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from outrigger_testenv.bench.figure import Effort, Failed, Measurement
from outrigger_testenv.bench.generator import ENGINE, Report, Side, compare
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.builder import ModelBuilder, ModelPackage
from outrigger_testenv.features import TREATMENT, Input, vector

LAYERS, WIDTH = 4, 2048
CALLERS = 64
# A batch is run when every caller is in it, or after a millisecond.
_PARAMETERS = f"""
max_batch_size {{ value: {CALLERS} }}
batch_timeout_micros {{ value: 1000 }}
max_enqueued_batches {{ value: {CALLERS} }}
pad_variable_length_inputs: true
"""
# A few turns are enough: the gain is large.
_TURNS = 3
_NAME = "wide"
_TOLERANCE = 1e-3


def gain(_: Setup, effort: Effort) -> Measurement:
    """Answers a second with batching over those without, 64 requests of one treatment in flight.
    Raises Failed if scores differ.
    """
    # Imported here because importing TensorFlow takes seconds.
    from outrigger_testenv.bench.bare_engine import pid, serving

    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="outrigger-bench-"))
        )
        package = _model(directory / "package")
        base = directory / _NAME
        base.mkdir()
        (base / "1").symlink_to(package.saved_model)
        sides, scores = [], []
        for name, batching in (("batching", _PARAMETERS), ("no batching", None)):
            served = serving(directory / name.replace(" ", "-"), {_NAME: base}, batching)
            engine, client = stack.enter_context(served)
            scores.append(_scores(client))
            arguments = ["--direct", engine.endpoint, "--servable", _NAME]
            arguments += ["--package", str(package.directory), "--timeout", "30s"]
            sides.append(Side(name, arguments, {ENGINE: pid(engine.process)}))
        check(*scores)
        return _compared(sides, effort)


def turns(effort: Effort) -> Effort:
    """The effort of the figure."""
    return replace(effort, repeats=min(_TURNS, effort.repeats))


def _compared(sides: Sequence[Side], effort: Effort) -> Measurement:
    def ratio(on: Report, off: Report) -> float:
        return on.throughput / off.throughput

    load = ("--max", "--in-flight", str(CALLERS))
    return compare(*sides, load, turns(effort), ratio, treatments=1, connections=CALLERS)


def _model(directory: Path) -> ModelPackage:
    """A model of dense layers with random but fixed weights, over a vector for each treatment."""
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            draw = np.random.default_rng(1)
            scale = np.sqrt(2 / WIDTH)
            self.layers = [
                tf.Variable(draw.normal(scale=scale, size=(WIDTH, WIDTH)).astype("f4"))
                for _ in range(LAYERS)
            ]

        def __call__(self, item):
            rows = tf.reshape(item, [-1, WIDTH])
            for layer in self.layers:
                rows = tf.nn.relu(tf.matmul(rows, layer))
            return tf.reshape(tf.reduce_mean(rows, -1), tf.shape(item)[:2])

    inputs = [Input("item", TREATMENT, "float32", (vector("item", WIDTH, required=True),))]
    return ModelBuilder(inputs).build(Model(), directory)


def _scores(client: Any) -> np.ndarray:
    """The scores of different requests, one for each caller, made at the same time."""
    from outrigger_testenv.bench.bare_engine import output
    from outrigger_testenv.conformance.client import Spec

    draw = np.random.default_rng(2)
    items = draw.normal(size=(CALLERS, 1, 1, WIDTH)).astype("f4")
    calls = [client.predict(Spec(name=_NAME), {"item": item}) for item in items]
    return np.array([output(call) for call in calls])


def check(on: np.ndarray, off: np.ndarray) -> None:
    """Compares scores with batching and without. Raises Failed if they differ."""
    worst = np.max(np.abs(on - off) / np.abs(off))
    if not worst <= _TOLERANCE:
        raise Failed(f"scores differ by {worst:.1e} with batching")
