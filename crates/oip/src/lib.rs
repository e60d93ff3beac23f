//! The Open Inference Protocol, as far as servers and clients share it: datatypes, tensors and
//! their checks. Synchronous, without I/O.
//!
//! All forms of a message (gRPC, JSON, JSON with binary tensors) have the same [`Tensor`]s, whose
//! elements are little-endian and row-major.

mod datatype;
mod malformed;
pub mod shape;
mod tensor;

pub use datatype::DataType;
pub use malformed::Malformed;
pub use tensor::{Elements, Tensor};
