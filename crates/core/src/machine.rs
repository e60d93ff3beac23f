//! Types shared by all machines: the context of an event, attempts, and outcomes.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use crate::{Moment, Policy, ServableId, ServableName, Version};

/// The context in which an event is handled, as values. `P` is the machine's policy: its times and
/// limits.
#[derive(Debug)]
pub struct Context<'a, P = Policy> {
    /// The current time.
    pub now: Moment,
    /// A random number from 0 to 1.
    pub jitter: f64,
    /// Times and limits.
    pub policy: &'a P,
    /// The source of new version numbers.
    pub versions: &'a Versions,
}

/// A counter of versions. It only grows, so no version is used twice. Clones share the counter.
#[derive(Debug, Clone)]
pub struct Versions(Arc<AtomicI64>);

impl Versions {
    /// Starts after `last`. Give it the larger of the number in the journal and the
    /// time in milliseconds, so that a lost journal does not repeat a version.
    pub fn after(last: Version) -> Self {
        Self(Arc::new(AtomicI64::new(last.0)))
    }

    /// Returns a servable of `name` with a version that was never used.
    pub fn next(&self, name: ServableName) -> ServableId {
        ServableId { name, version: Version(self.0.fetch_add(1, Relaxed) + 1) }
    }

    /// The last version assigned.
    pub fn last(&self) -> Version {
        Version(self.0.load(Relaxed))
    }
}

/// The number of an attempt at some work. A completion carries the number of its attempt; a
/// completion of an earlier attempt is stale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

impl Attempt {
    /// Begins a new attempt.
    pub fn begin(&mut self) -> Self {
        self.0 += 1;
        *self
    }
}

/// The outcome of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The machine has handled the event.
    Handled,
    /// The event belongs to an earlier attempt; nothing changed.
    Stale,
    /// The event cannot happen in this state, or belongs to an attempt that never existed: a defect
    /// somewhere. Nothing changed.
    Unexpected,
}

impl Outcome {
    /// The outcome of a completion of `attempt` that the state does not wait for.
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
