//! Log lines about the arm given to each routing key, for evaluation elsewhere.

use std::sync::OnceLock;

use outrigger_canary::Share;
use outrigger_core::{Arm, ModelKey};

/// The first request of a routing key on an arm. One log line is written for it when the request
/// ends, answered or not.
#[derive(Debug)]
pub struct Exposure {
    key: String,
    model: ModelKey,
    arm: Arm,
    share: Share,
    propensity: OnceLock<f32>,
}

impl Exposure {
    /// True if exposures are logged: only at level DEBUG, because keys may be personal.
    pub(crate) fn is_logged() -> bool {
        tracing::enabled!(target: "outrigger_exposure", tracing::Level::DEBUG)
    }

    pub(crate) fn new(key: &str, model: &ModelKey, arm: Arm, share: Share) -> Self {
        let (key, model) = (key.to_owned(), model.clone());
        Self { key, model, arm, share, propensity: OnceLock::new() }
    }

    /// Records the probability with which the model drew its chosen treatment.
    pub fn drawn(&self, propensity: f32) {
        // A request is answered once, so the value is not set yet.
        let _ = self.propensity.set(propensity);
    }
}

impl Drop for Exposure {
    fn drop(&mut self) {
        tracing::debug!(
            target: "outrigger_exposure",
            { model.name = %self.model.name, model.digest = %self.model.digest,
              routing_key = self.key, arm = self.arm.as_str(),
              share = self.share.probability(), propensity = self.propensity.get() },
            "a key is exposed"
        );
    }
}
