//! Log lines and counts of work on versions.

use outrigger_core::{Digest, EngineId, Failure, ModelKey, machines::TagKey};

use crate::{metrics, replay::Replayed};

/// Logs and counts that another version answers for a tag.
pub(super) fn switched(key: &TagKey, digest: Digest) {
    metrics::switched();
    tracing::info!(
        model.name = %key.name, model.tag = %key.tag, model.digest = %digest,
        "the tag is served by another version"
    );
}

/// Logs that no version explains the crashes of an engine.
pub(super) fn unexplained(engine: &EngineId) {
    tracing::warn!(
        %engine,
        "the engine ends again and again, and no version explains it: something else kills it, or \
         its memory is too small; versions in quarantine for it are loaded again"
    );
}

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
