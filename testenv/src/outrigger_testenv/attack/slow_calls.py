"""A model whose every call takes a given time, without using a processor."""

from pathlib import Path

from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.variants import tiny_builder


def package(directory: Path, seconds: float) -> ModelPackage:
    """A tiny model that scores 3 after a time."""
    return tiny_builder().build(_sleep(seconds), directory)


def _sleep(seconds: float):
    import tensorflow as tf

    def slowly(user, offer):
        shape = {"output_types": [tf.int64], "output_shapes": [[]]}
        one = tf.constant(1, tf.int64)
        rows = tf.raw_ops.RangeDataset(start=one - one, stop=one, step=one, **shape)
        # The data set sleeps twice: for its element, and for its end.
        pause = tf.constant(int(seconds / 2 * 1e6), tf.int64)
        rows = tf.raw_ops.SleepDataset(input_dataset=rows, sleep_microseconds=pause, **shape)
        (row,) = tf.raw_ops.DatasetToSingleElement(dataset=rows, **shape)
        kept = 0 * tf.cast(row, tf.float32)
        return tf.zeros_like(offer[:, :, 0]) + 0 * user + 3.0 + kept

    return slowly
