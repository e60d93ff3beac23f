//! Effects of a step of the trials.

use outrigger_core::{Digest, fleet::TagKey};

use crate::{jobs::Job, record::CanaryRecord};

/// Something to be done after a step of the trials.
#[derive(Debug)]
pub enum Effect {
    /// Do not try the digest as a canary any more, until its tag moves.
    Reject(TagKey, Digest),
    /// Answer for the tag by the digest, without the registry.
    Promote(TagKey, Digest),
    /// Look the tag up soon.
    LookUp(TagKey),
    /// The canary's tag is gone from the registry. The use of its version by requests
    /// must be reported to the machines first: who asks for it by name is still answered.
    Removed(TagKey),
    /// Do work with the registry.
    Run(Job),
    /// Write the record to the journal.
    Save(CanaryRecord),
}
