//! The shells that run core's state machines: which models there are, pulling
//! and preparing them, the engine's configuration, the golden gate, and the
//! routing table that requests read.

mod aside;
#[cfg(test)]
mod bench;
mod blocking;
mod call;
mod canaries;
mod clock;
mod config;
mod drains;
mod error;
mod exposure;
mod gate;
mod handle;
mod jobs;
mod labels;
mod lease;
pub mod metrics;
mod names;
mod outcomes;
mod package;
mod profile;
mod pull;
mod recent;
mod replay;
mod routes;
mod service;
mod shadow;
mod signatures;
mod snapshot;
mod split;
mod watched;
mod world;

pub use canaries::{
    Act, ArmView, By, Canaries, CanaryDecision, CanaryOutcome, CanaryPhase, CanaryView,
    DeviationView, FiguresView, FindingView, ShadowedView, VerdictView,
};
pub use config::{CanaryDefaults, Config, Images, ModelEntry, Retry, Watch};
pub use error::Error;
pub use gate::Gate;
pub use handle::Handle;
pub use labels::{OTHER, limit_models, model_label};
pub use lease::{Lease, Servable};
pub use package::read_model;
pub use profile::Profiled;
pub use pull::Pull;
pub use replay::Replayed;
pub use service::{Service, start};
pub use signatures::Signed;
pub use snapshot::{
    EngineView, FailureView, ModelView, Snapshot, TagCanaryView, TagView, TransitionView,
    VersionView,
};
pub use split::Answered;

/// The target of the log's lines that record changes, whoever makes them.
pub const AUDIT: &str = "outrigger::audit";
