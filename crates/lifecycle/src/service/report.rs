//! Log lines and counts of work on versions.

use outrigger_core::{Failure, ModelKey};

use crate::{metrics, replay::Replayed};

/// Logs the warm-up of a version.
pub(super) fn replay(key: &ModelKey, replayed: &Replayed) {
    metrics::replayed(replayed);
    if let Some(failure) = &replayed.failure {
        tracing::warn!(
            model.name = %key.name, model.digest = %key.digest,
            failed = replayed.failed, answered = replayed.answered,
            reason = %failure.reason, error = %failure.message,
            "a version fails recent requests of its model"
        );
    }
}

/// Logs and counts a failure where it becomes known.
pub(super) fn failure(key: &ModelKey, doing: &'static str, failure: &Failure) {
    metrics::failed(failure);
    tracing::warn!(
        model.name = %key.name,
        model.digest = %key.digest,
        reason = %failure.reason,
        error = %failure.message,
        "{doing} failed"
    );
}
