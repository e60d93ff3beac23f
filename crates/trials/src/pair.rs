//! The two versions of a trial.

use outrigger_core::Digest;

/// The live version and the canary that is compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The version that answers for the tag.
    pub live: Digest,
    /// The version on trial.
    pub canary: Digest,
}
