//! The effects of a step of the trials.

use outrigger_core::{Digest, machines::TagKey};

use crate::jobs::Job;

/// An effect to carry out after a step of the trials.
#[derive(Debug)]
pub enum Effect {
    /// Reject the digest as a canary, until its tag moves.
    Reject(TagKey, Digest),
    /// Let the digest answer for the tag, without the registry.
    Promote(TagKey, Digest),
    /// Look the tag up soon.
    LookUp(TagKey),
    /// The canary's tag is gone from the registry. Uses of its version by requests must be reported
    /// to the machines first: requests by that name are still answered.
    Removed(TagKey),
    /// Run a job with the registry.
    Run(Job),
}
