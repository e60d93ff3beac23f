//! The reason why a version is not loaded any more.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Failure, ModelKey, Reason};

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
}

impl Sentence {
    /// The failure of the version.
    pub(super) fn failure(&self) -> Failure {
        let Self { for_load, crashes, .. } = self;
        let during = if *for_load { "its load or first run" } else { "its calls" };
        let message = format!(
            "the engine ended {crashes} times during {during}: it is not loaded again until its \
             tag moves to another digest and back, or an operator loads it"
        );
        Failure::new(Reason::ModelQuarantined, message)
    }
}
