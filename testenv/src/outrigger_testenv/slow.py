"""A model whose load takes a given time, without using a processor."""

from pathlib import Path

from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.variants import tiny_builder


def slow(directory: Path, seconds: float) -> ModelPackage:
    """A tiny model that scores 3 and whose initialisation sleeps."""
    return tiny_builder().build(_sleeper(seconds), directory)


def late_number(seconds: float):
    """A number that TensorFlow computes in the given time: a scalar of int64."""
    import tensorflow as tf

    shape = {"output_types": [tf.int64], "output_shapes": [[]]}
    one = tf.constant(1, tf.int64)
    rows = tf.raw_ops.RangeDataset(start=one - one, stop=one, step=one, **shape)
    # The data set sleeps twice: for its element, and for its end.
    pause = tf.constant(int(seconds / 2 * 1e6), tf.int64)
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
