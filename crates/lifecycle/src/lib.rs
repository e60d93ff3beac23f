//! The shells that run core's state machines: which models there are, pulling
//! and preparing them, the engine's configuration, the golden gate, and the
//! routing table that requests read.

#[cfg(test)]
mod bench;
mod clock;
mod config;
mod drains;
mod error;
mod gate;
mod handle;
mod jobs;
mod lease;
pub mod metrics;
mod names;
mod routes;
mod service;
mod snapshot;
mod watched;
mod world;

pub use config::{Config, Images, ModelEntry, Retry, Watch};
pub use error::Error;
pub use gate::Gate;
pub use handle::Handle;
pub use lease::{Lease, Servable};
pub use service::{Service, start};
pub use snapshot::{
    EngineView, FailureView, ModelView, Snapshot, TagView, TransitionView, VersionView,
};
