//! Canary trials: the split of requests, their outcomes, and the decisions.
//!
//! [`Trials`] is sans-I/O: it receives events with the state of tags and versions ([`Context`]),
//! and returns [`Effect`]s for its owner to carry out. A [`Judge`] decides from the evidence of
//! each trial. [`Split`] and its parts run on the threads that serve requests.

mod aside;
mod callers;
mod config;
mod context;
mod decisions;
mod effect;
mod exposure;
mod in_flight;
mod jobs;
mod judge;
mod labels;
pub mod metrics;
mod outcomes;
mod pair;
mod profile;
mod promotion;
mod record;
mod reports;
mod running;
mod set;
mod settings;
mod shadow;
mod split;
mod trials;
mod views;

pub use aside::Worker;
pub use config::CanaryDefaults;
pub use context::{Context, PackageFacts, TagState};
pub use effect::Effect;
pub use exposure::Exposure;
pub use jobs::{Completion, Job, MayPush, Registry};
pub use judge::{Evidence, Judge, LocalJudge};
pub use labels::{OTHER, limit_models, model_label};
pub use outrigger_canary::Salt;
pub use pair::Pair;
pub use profile::Profiled;
pub use promotion::Reply;
pub use record::CanaryRecord;
pub use reports::Reports;
pub use split::{Answered, Chosen, OnCanary, Servable, Split};
pub use trials::{Arms, Trials};
pub use views::{
    Act, ArmView, By, Canaries, CanaryDecision, CanaryOutcome, CanaryPhase, CanaryView,
    DeviationView, FiguresView, FindingView, ShadowedView, TagCanaryView, VerdictView,
};

/// The target of audit log lines: changes of the answers that callers get.
pub const AUDIT: &str = "outrigger::audit";
