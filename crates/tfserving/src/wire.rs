//! Predict's messages between our tensors and TensorFlow Serving's bytes,
//! without generated types in between: a request is framed around its tensors,
//! which are not copied; an answer's are slices of the message that came in.
//!
//! Field numbers are those of `proto/tensorflow`.

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
