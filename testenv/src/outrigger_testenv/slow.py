"""Models whose load or run takes long, without using a processor."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import Client, request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.variants import good, tiny_builder

# The age of the user for whom a run of `at_a_call` has no end. The generated first request has 30.
AGE = 13.0
# Each of these callers calls once in this time, in seconds.
_CALLERS, _DEADLINE = 8, 0.2


def slow(directory: Path, seconds: float) -> ModelPackage:
    """A tiny model that scores 3 and whose initialisation sleeps."""
    return tiny_builder().build(_sleeper(seconds), directory)


def at_a_call(directory: Path, pipe: Path) -> ModelPackage:
    """A model that scores as `good`. Its run for a user of the age `AGE` reads a named pipe, which
    TensorFlow does not interrupt: it goes on until somebody opens the pipe to write.
    """
    import tensorflow as tf

    os.mkfifo(pipe)
    shape = {"output_types": [tf.string], "output_shapes": [[]]}

    def score(user, offer):
        is_long = tf.reduce_any(tf.equal(user, AGE))
        file = tf.where(is_long, str(pipe), os.devnull)
        # The file has no line, and the whole has one element.
        lines = tf.raw_ops.TextLineDataset(filenames=file, compression_type="", buffer_size=0)
        last = tf.raw_ops.TensorDataset(components=[tf.constant("")], output_shapes=[[]])
        lines = tf.raw_ops.ConcatenateDataset(input_dataset=lines, another_dataset=last, **shape)
        (line,) = tf.raw_ops.DatasetToSingleElement(dataset=lines, **shape)
        return good(user, offer) + 0 * tf.cast(tf.strings.length(line), tf.float32)

    return tiny_builder().build(score, directory)


@contextmanager
def flooded(target: str, name: str, seconds: float, pipe: Path) -> Iterator[threading.Thread]:
    """Calls such a model 40 times a second, for a user of the age `AGE` and with deadlines of 200
    ms. Yields the thread that does so, waits for its end, and ends the runs.
    """
    message = request({"age": AGE}, None)
    message.model.CopyFrom(selector(name))
    message.treatments.add().features["price"].number = 1.0

    def call() -> None:
        end = time.monotonic() + seconds
        with Client(target, _DEADLINE) as client:
            while (began := time.monotonic()) < end:
                with suppress(OutriggerError):
                    client.call(message)
                time.sleep(max(0.0, began + _DEADLINE - time.monotonic()))

    def flood() -> None:
        with ThreadPoolExecutor(_CALLERS) as callers:
            list(callers.map(lambda _: call(), range(_CALLERS)))

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()
        with suppress(OSError):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


def late_number(seconds):
    """An int64 scalar that TensorFlow computes in the given time, a number or a tensor."""
    import tensorflow as tf

    shape = {"output_types": [tf.int64], "output_shapes": [[]]}
    one = tf.constant(1, tf.int64)
    rows = tf.raw_ops.RangeDataset(start=one - one, stop=one, step=one, **shape)
    # The data set sleeps twice: for its element, and for its end.
    pause = tf.cast(seconds / 2 * 1e6, tf.int64)
    rows = tf.raw_ops.SleepDataset(input_dataset=rows, sleep_microseconds=pause, **shape)
    (number,) = tf.raw_ops.DatasetToSingleElement(dataset=rows, **shape)
    return number


def _sleeper(seconds: float):
    import tensorflow as tf

    class Sleep(tf.saved_model.experimental.TrackableResource):
        """A table whose initialiser, run by the load, waits for a slow data set."""

        def _create_resource(self):
            return tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)

        def _initialize(self):
            number = late_number(seconds)
            tf.raw_ops.LookupTableInsertV2(
                table_handle=self.resource_handle, keys=number[None], values=number[None]
            )

    class Sleeper(tf.Module):
        """A module that keeps the table in its graph."""

        def __init__(self):
            super().__init__()
            self.sleep = Sleep()

        def __call__(self, user, offer):
            size = tf.raw_ops.LookupTableSizeV2(table_handle=self.sleep.resource_handle)
            kept = 0 * tf.cast(size, tf.float32)
            return tf.zeros_like(offer[:, :, 0]) + 0 * user + 3.0 + kept

    return Sleeper()
