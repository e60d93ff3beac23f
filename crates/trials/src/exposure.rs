//! Which routing key was given which arm, as log lines that are evaluated elsewhere.

use std::sync::OnceLock;

use outrigger_canary::Share;
use outrigger_core::{Arm, ModelKey};

/// A routing key's first request on an arm. There is one log line for it, written when
/// that request is over, answered or not.
#[derive(Debug)]
pub struct Exposure {
    key: String,
    model: ModelKey,
    arm: Arm,
    share: Share,
    propensity: OnceLock<f32>,
}

impl Exposure {
    /// Whether the log's level names exposures: keys may be personal.
    pub(crate) fn is_logged() -> bool {
        tracing::enabled!(target: "outrigger_exposure", tracing::Level::DEBUG)
    }

    pub(crate) fn new(key: &str, model: &ModelKey, arm: Arm, share: Share) -> Self {
        let (key, model) = (key.to_owned(), model.clone());
        Self { key, model, arm, share, propensity: OnceLock::new() }
    }

    /// Adds the probability with which the model drew the treatment it chose.
    pub fn drawn(&self, propensity: f32) {
        // A request is answered once.
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
