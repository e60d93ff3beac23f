//! The two versions of a trial.

use outrigger_core::Digest;

/// The live version and the canary that is compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) live: Digest,
    pub(crate) canary: Digest,
}
