"""A model whose every call takes a given time, without using a processor."""

from pathlib import Path

from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.slow import late_number
from outrigger_testenv.variants import tiny_builder


def package(directory: Path, seconds: float) -> ModelPackage:
    """A tiny model that scores 3 after a time."""
    return tiny_builder().build(_sleep(seconds), directory)


def _sleep(seconds: float):
    import tensorflow as tf

    def slowly(user, offer):
        kept = 0 * tf.cast(late_number(seconds), tf.float32)
        return tf.zeros_like(offer[:, :, 0]) + 0 * user + 3.0 + kept

    return slowly
