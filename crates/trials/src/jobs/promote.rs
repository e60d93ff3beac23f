//! The job that makes a canary live in the registry.

use std::sync::OnceLock;

use outrigger_core::{Digest, Failure, Reason, machines::TagKey};

use super::Registry;
use crate::pair::Pair;

/// The result of promoting a canary in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Moved {
    /// The tag names the canary.
    Promoted,
    /// The tag names neither the trial's live version nor the canary, and was not changed.
    Elsewhere(Digest),
    /// The tag still names the live version: the push failed.
    Failed(Failure),
    /// The tag still names the live version: the push was cancelled before it began.
    Cancelled,
}

/// The push of a tag, which can be cancelled until it begins.
#[derive(Debug, Default)]
pub(crate) struct Push(OnceLock<Fate>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Begun,
    Cancelled,
}

impl Push {
    /// Begins the push unless it is cancelled. Returns true if it has begun.
    fn begin(&self) -> bool {
        *self.0.get_or_init(|| Fate::Begun) == Fate::Begun
    }

    /// Cancels the push unless it has begun. Returns true if it is cancelled.
    pub(crate) fn cancel(&self) -> bool {
        *self.0.get_or_init(|| Fate::Cancelled) == Fate::Cancelled
    }

    /// True if the push has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.get() == Some(&Fate::Begun)
    }
}

/// Moves the tag `key` from the pair's live version to its canary, unless the tag has moved
/// or `push` is cancelled.
///
/// # Errors
/// The registry's failure, if it does not report the digest of the tag.
pub(crate) async fn promote(
    registry: &dyn Registry,
    key: &TagKey,
    pair: Pair,
    push: &Push,
) -> Result<Moved, Failure> {
    let moved = registry.move_tag(key, pair, &|| push.begin()).await;
    let (named, failure) = match moved {
        Ok(named) => (named, None),
        // The registry may have moved the tag without confirming it.
        Err(failure) if push.has_begun() => (registry.resolve(key).await?, Some(failure)),
        Err(failure) => return Err(failure),
    };
    let Pair { live, canary } = pair;
    let unchanged = || {
        let message = "the tag was pushed, and still names what was live";
        failure.unwrap_or_else(|| Failure::new(Reason::RegistryUnavailable, message))
    };
    Ok(match named {
        _ if named == canary => Moved::Promoted,
        _ if named != live => Moved::Elsewhere(named),
        _ if push.has_begun() => Moved::Failed(unchanged()),
        _ => Moved::Cancelled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_has_begun_or_is_cancelled_and_stays_so() {
        let (begun, cancelled) = (Push::default(), Push::default());
        assert!(begun.begin() && begun.begin() && !begun.cancel());
        assert!(begun.has_begun());
        assert!(cancelled.cancel() && cancelled.cancel() && !cancelled.begin());
        assert!(!cancelled.has_begun());
    }
}
