//! The reason why a version is not loaded any more.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};

use super::QUIET;
use crate::{Failure, ModelKey, Reason};

/// The longest time until a trial, as a power of two of the shortest.
const LONGEST: u32 = 7;

/// The reason why a version is not loaded any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sentence {
    /// True: for crashes during its load or first run. False: for crashes during its calls.
    pub for_load: bool,
    /// The number of crashes.
    pub crashes: u32,
    /// Versions with calls in flight at each of the crashes, which may have caused them.
    pub(super) others: BTreeSet<ModelKey>,
    /// The trials that it has had: in each of them the engine ended again.
    #[serde(default)]
    pub(super) trials: u32,
}

/// A version that was convicted, and is loaded again to see whether the engine still ends by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trial {
    /// The number of its trials.
    pub(super) number: u32,
    /// The time at which it has passed, unless the engine has ended by then.
    pub(super) until: Duration,
}

impl Sentence {
    /// The time without a crash after which the version is tried again.
    pub(super) fn pause(&self) -> Duration {
        QUIET * (1 << self.trials.min(LONGEST))
    }

    /// The failure of the version.
    pub(super) fn failure(&self) -> Failure {
        let Self { for_load, crashes, .. } = self;
        let minutes = self.pause().as_secs() / 60;
        let during = if *for_load { "its load or first run" } else { "its calls" };
        let message = format!(
            "the engine ended {crashes} times during {during}: it is tried again after {minutes} \
             minutes without a crash, or when its tag moves to another digest and back, or an \
             operator loads it"
        );
        Failure::new(Reason::ModelQuarantined, message)
    }
}
