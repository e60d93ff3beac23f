//! The judge of canary trials: statistics of both arms' traffic, the sequential tests
//! that decide on them, and a simulation of both. Sync, no I/O; time and randomness come
//! in as values. `docs/canary.md` has the statistics and their sources.

mod assignment;
mod breaker;
mod cap;
mod capacity;
mod config;
mod decider;
mod evidence;
mod label;
mod observation;
mod profile;
mod random;
mod reference;
mod settings;
mod share;
mod signal;
pub mod simulation;
pub mod statistics;
mod trial;
mod verdict;

pub use outrigger_core::Arm;

pub use assignment::{Draw, Exposures, Salt};
pub use breaker::{Probes, Slots};
pub use cap::Cap;
pub use config::{Config, LatencyLimits, Limits, NonFiniteLimits, SkewLimits};
pub use decider::{Course, Decider};
pub use label::{LABEL, Layer};
pub use observation::{Observation, Outcome, Pair};
pub use profile::{Entity, Feature, FeatureValue, InvalidProfile, Profile};
pub use reference::Reference;
pub use settings::{InvalidSettings, Mode, OnStarved, Ramp, Settings, Step, WarmUp};
pub use share::{InvalidShare, Share};
pub use signal::Signal;
pub use statistics::{Deviation, Merge, Statistics};
pub use trial::{Cause, Conclusion, Progress, Trial};
pub use verdict::{Decision, Finding, SampleRatio, State, Verdict};
