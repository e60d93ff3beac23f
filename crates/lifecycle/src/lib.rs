//! The shells that run core's state machines: known models, pulls and preparation, the engines, the
//! golden gate, and the routing table that requests read.

mod blocking;
mod config;
mod courier;
mod drains;
mod engines;
mod error;
mod flights;
mod gate;
mod handle;
mod jobs;
mod journal;
mod lease;
mod load;
mod location;
pub mod metrics;
mod model_map;
mod names;
mod numbered;
mod package;
mod places;
mod publishing;
mod pull;
mod pulls;
mod recent;
mod replay;
#[cfg(test)]
mod rig;
mod routes;
mod schedule;
mod service;
mod signatures;
mod snapshot;
mod sources;
mod trial_context;
mod versions;
mod world;

pub use config::{Config, Images, ModelEntry, Retry, Signed, Tunables, VersionDirectory, Watch};
pub use engines::ByName as Engines;
pub use error::Error;
pub use gate::Gate;
pub use handle::Handle;
pub use lease::{Divided, Interrupted, Lease, Servable};
pub use load::{Admitted, Ask, Entry, Late, Load, Running, Waiting};
pub use model_map::ModelMap;
pub use outrigger_trials::{
    AUDIT, Act, Answered, ArmView, By, Canaries, CanaryDecision, CanaryDefaults, CanaryOutcome,
    CanaryPhase, CanaryView, DeviationView, FiguresView, FindingView, OTHER, Profiled, Salt,
    ShadowedView, TagCanaryView, VerdictView, limit_models, model_label,
};
pub use package::{Golden, ModelFiles, training_profile};
pub use pull::{Pull, Turn};
pub use replay::Replayed;
pub use service::{Service, start};
pub use snapshot::{
    EngineView, FailureView, ModelView, Snapshot, TagView, TransitionView, VersionView,
};
