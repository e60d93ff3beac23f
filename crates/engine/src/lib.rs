//! The local engine: TensorFlow Serving's interface over libtensorflow.
//!
//! It replaces TensorFlow Serving where that is not available: on laptops, in tests and
//! in CI. Clients see the same loading and unloading behaviour, including its drawbacks:
//! a reload can wait for ever, a failed version is never loaded again, and calls are
//! refused when too many are waiting.
//!
//! [`manager`] decides which servables are in memory, [`loader`] loads them, [`source`]
//! finds them on disk, [`reload`] applies configurations, [`surface`] is the gRPC
//! interface, [`batching`] merges requests, [`step_stats`] adds up the times of operations and
//! [`tensorflow`] is the runtime.

pub mod batching;
pub mod config;
mod connections;
pub mod cores;
pub mod environment;
pub mod loader;
mod malformed;
pub mod manager;
mod options;
pub mod reload;
pub mod servable;
mod server;
pub mod source;
mod status;
pub mod step_stats;
pub mod surface;
pub mod tensorflow;

pub use options::{Models, Options};
pub use server::{Engine, Error, run};
pub use source::Poll;
pub use status::Status;
