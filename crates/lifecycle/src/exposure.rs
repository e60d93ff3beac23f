//! Who was given which arm, for whoever evaluates that elsewhere.

use std::sync::OnceLock;

use outrigger_canary::Share;
use outrigger_core::{Arm, ModelKey};

/// That a routing key was given an arm. There is one log line for it, once its first
/// request on that arm is over, however it went.
#[derive(Debug)]
pub(crate) struct Exposure {
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

    /// Notes with which probability the model has drawn what it chose.
    pub(crate) fn drawn(&self, propensity: f32) {
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
