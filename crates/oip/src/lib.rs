//! The Open Inference Protocol, as far as servers and clients share it: datatypes, tensors and
//! their checks, and the forms of messages. Synchronous, without I/O.
//!
//! All forms of a message (gRPC, JSON, JSON with binary tensors) have the same [`Tensor`]s, whose
//! elements are little-endian and row-major. [`rest`] and [`grpc`] read requests strictly and
//! responses leniently, and write both.

mod datatype;
pub mod grpc;
mod infer;
mod malformed;
pub mod message;
pub mod metadata;
mod parameters;
mod presence;
pub mod rest;
pub mod shape;
pub mod statistics;
mod tensor;

pub use datatype::DataType;
pub use infer::{InferRequest, InferResponse, RequestedOutput};
pub use malformed::Malformed;
pub use parameters::{MAX_PARAMETERS, Parameter, Parameters};
pub use presence::{presence, presence_of};
pub use tensor::{Elements, Tensor};
