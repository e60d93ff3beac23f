//! What all machines share: the situation an event is handled in, attempts, and
//! what became of an event.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use crate::{Moment, Policy, ServableId, ServableName, Version};

/// The situation an event is handled in, as values. `P` are the times and limits
/// of the machine.
#[derive(Debug)]
pub struct Context<'a, P = Policy> {
    /// What time it is.
    pub now: Moment,
    /// A random number from 0 to 1.
    pub jitter: f64,
    /// Times and limits.
    pub policy: &'a P,
    /// Where new versions come from.
    pub versions: &'a Versions,
}

/// Counts versions: only up, so that none is used twice. Clones share the counter.
#[derive(Debug, Clone)]
pub struct Versions(Arc<AtomicI64>);

impl Versions {
    /// Starts after `last`. Give it the larger of what the journal says and the
    /// time in milliseconds, so that a lost journal does not repeat a version.
    pub fn after(last: Version) -> Self {
        Self(Arc::new(AtomicI64::new(last.0)))
    }

    /// A version of `name` that never was.
    pub fn next(&self, name: ServableName) -> ServableId {
        ServableId { name, version: Version(self.0.fetch_add(1, Relaxed) + 1) }
    }

    /// The last version given out.
    pub fn last(&self) -> Version {
        Version(self.0.load(Relaxed))
    }
}

/// Number of an attempt at something. A completion carries the attempt it
/// belongs to; one of an earlier attempt is stale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

impl Attempt {
    /// Begins a new attempt.
    pub fn begin(&mut self) -> Self {
        self.0 += 1;
        *self
    }
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The machine has dealt with it.
    Handled,
    /// It belongs to an earlier attempt; nothing changed.
    Stale,
    /// It cannot happen in this state, or belongs to an attempt that never was:
    /// a defect somewhere. Nothing changed.
    Unexpected,
}

impl Outcome {
    /// A completion of `attempt` that the state does not wait for.
    pub fn late(attempt: Attempt, last: Attempt) -> Self {
        if attempt <= last { Self::Stale } else { Self::Unexpected }
    }

    /// A stable lower-case name, for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Stale => "stale",
            Self::Unexpected => "unexpected",
        }
    }
}
