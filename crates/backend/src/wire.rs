//! Predict's messages between our tensors and TensorFlow Serving's bytes,
//! without generated types in between: a request's tensors are copied once, into
//! the outgoing frame; an answer's are slices of the frame that came in.
//!
//! Field numbers are those of `proto/tensorflow`.

mod decode;
mod dtype;
mod encode;
mod reader;

pub use decode::{DecodeError, decode_response, decode_tensor};
pub use encode::{encode_request, encoded_len};

#[cfg(test)]
mod tests;
