//! The local engine: TensorFlow Serving's interface over libtensorflow.
