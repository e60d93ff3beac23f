//! The shells that run core's state machines: which models there are, pulling
//! and preparing them, the engine's configuration, the golden gate, and the
//! routing table that requests read.

mod aside;
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
mod lease;
pub mod metrics;
mod names;
mod outcomes;
mod routes;
mod service;
mod shadow;
mod signatures;
mod snapshot;
mod split;
mod watched;
mod world;

pub use canaries::{
    Act, By, Canaries, CanaryDecision, CanaryOutcome, CanaryPhase, CanaryView, FindingView,
    ShadowedView, VerdictView,
};
pub use config::{CanaryDefaults, Config, Images, ModelEntry, Retry, Watch};
pub use error::Error;
pub use gate::Gate;
pub use handle::Handle;
pub use lease::{Lease, Servable};
pub use service::{Service, start};
pub use signatures::Signed;
pub use snapshot::{
    EngineView, FailureView, ModelView, Snapshot, TagView, TransitionView, VersionView,
};
pub use split::Answered;
