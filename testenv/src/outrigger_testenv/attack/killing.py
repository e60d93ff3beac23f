"""Models that kill the engine's process."""

from pathlib import Path

from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.variants import tiny_builder

# A user of this age or more kills the engine, where a model kills on a certain request.
DEADLY = 1000.0


def always(directory: Path) -> ModelPackage:
    """A model that aborts the process at its first run."""
    import tensorflow as tf

    def kill(user, offer):
        return _dead() + tf.zeros_like(offer[:, :, 0]) + 0 * user

    return tiny_builder().build(kill, directory)


def on_request(directory: Path) -> ModelPackage:
    """A model that aborts the process for users of a certain age."""
    import tensorflow as tf

    def kill(user, offer):
        kept = tf.cond(tf.reduce_max(user) >= DEADLY, _dead, lambda: tf.constant(0.0))
        return kept + tf.zeros_like(offer[:, :, 0]) + 0 * user

    return tiny_builder().build(kill, directory)


def _dead():
    import tensorflow as tf

    with tf.control_dependencies([tf.raw_ops.Abort(error_msg="killed by a model")]):
        return tf.identity(tf.constant(0.0))
