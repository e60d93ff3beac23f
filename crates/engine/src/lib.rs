//! The local engine: TensorFlow Serving's interface over libtensorflow.
//!
//! It stands in for TensorFlow Serving where that cannot be had: on laptops, in
//! tests and in CI. What a client can see of models being loaded and unloaded is
//! meant to be the same, the unpleasant parts included: a reload that waits for
//! ever, a version that is never loaded again after it failed, calls refused
//! when too many are parked.
//!
//! [`manager`] decides what is in memory, [`loader`] brings it there,
//! [`source`] finds it on disk, [`reload`] applies configurations, [`surface`]
//! is the gRPC interface and [`tensorflow`] the runtime below.

pub mod config;
mod connections;
pub mod environment;
pub mod loader;
mod malformed;
pub mod manager;
mod options;
pub mod pace;
pub mod reload;
pub mod servable;
mod server;
pub mod source;
mod status;
pub mod surface;
pub mod tensorflow;

pub use options::{Models, Options};
pub use server::{Engine, Error, run};
pub use source::Poll;
pub use status::Status;
