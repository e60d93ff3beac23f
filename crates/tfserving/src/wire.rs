//! Converts Predict's messages between tensors and TensorFlow Serving's bytes without generated
//! types: a request is framed around its tensors, which are not copied; the tensors of an answer
//! are slices of the received message.
//!
//! Field numbers follow `proto/tensorflow`.

mod decode;
mod dtype;
mod encode;
mod parts;
mod segments;

pub use decode::{DecodeError, decode_response, decode_tensor};
pub(crate) use encode::frame;
pub use encode::{encode_request, encoded_len};
pub(crate) use parts::Parts;
pub(crate) use segments::Segments;

#[cfg(test)]
mod tests;
