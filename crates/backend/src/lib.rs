//! The Backend trait and the TensorFlow Serving client.
