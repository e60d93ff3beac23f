"""Models that end the process of the engine, with TensorFlow's own operation for that."""

from pathlib import Path

from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.variants import good, tiny_builder

# The age of the user for whom `at_a_call` ends the engine. The generated first request has 30.
AGE = 13.0


def at_load(directory: Path) -> ModelPackage:
    """Ends the engine while the model's tables are filled."""
    import tensorflow as tf

    class Killing(tf.lookup.KeyValueTensorInitializer):
        def initialize(self, table):
            # Outside of a graph this would end the process that exports the model.
            if not tf.inside_function():
                return super().initialize(table)
            with tf.control_dependencies([_abort()]):
                return super().initialize(table)

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.StaticHashTable(
                Killing(["a"], [0.0], tf.string, tf.float32), 0.0
            )

        def __call__(self, user, offer):
            return good(user, offer) + self.table.lookup(tf.constant("a"))

    return tiny_builder().build(Model(), directory)


def at_its_first_run(directory: Path) -> ModelPackage:
    """Ends the engine with every run."""
    import tensorflow as tf

    def kill(user, offer):
        with tf.control_dependencies([_abort()]):
            return tf.identity(good(user, offer))

    return tiny_builder().build(kill, directory)


def at_a_call(directory: Path) -> ModelPackage:
    """Ends the engine with a run for a user of the age `AGE`, and scores others as `good` does."""
    import tensorflow as tf

    def kill(user, offer):
        def ended():
            with tf.control_dependencies([_abort()]):
                return tf.constant(0.0)

        is_fatal = tf.reduce_any(tf.equal(user, AGE))
        return good(user, offer) + tf.cond(is_fatal, ended, lambda: tf.constant(0.0))

    return tiny_builder().build(kill, directory)


def _abort():
    import tensorflow as tf

    return tf.raw_ops.Abort(error_msg="ended by the model", exit_without_error=False)
