//! The shells that run core's state machines: which models there are, pulling
//! and preparing them, the engine's configuration, the golden gate, and the
//! routing table that requests read.

#[cfg(test)]
mod bench;
mod canaries;
mod clock;
mod config;
mod drains;
mod error;
mod gate;
mod handle;
mod jobs;
mod labels;
mod lease;
pub mod metrics;
mod names;
mod outcomes;
mod routes;
mod service;
mod snapshot;
mod split;
mod watched;
mod world;

pub use canaries::{
    Act, By, Canaries, CanaryDecision, CanaryOutcome, CanaryPhase, CanaryView, FindingView,
    VerdictView,
};
pub use config::{CanaryDefaults, Config, Images, ModelEntry, Retry, Watch};
pub use error::Error;
pub use gate::Gate;
pub use handle::Handle;
pub use labels::{OTHER, limit_models, model_label};
pub use lease::{Lease, Servable};
pub use service::{Service, start};
pub use snapshot::{
    EngineView, FailureView, ModelView, Snapshot, TagView, TransitionView, VersionView,
};
