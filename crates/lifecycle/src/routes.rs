//! The routing table: an immutable snapshot that requests read without a lock.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use outrigger_core::{Digest, Failure, ModelName, Moment, Selector, Tag};
use outrigger_trials::Split;

use crate::{lease::Servable, model_map::ModelMap};

/// All known selectors and their answers.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub(crate) models: ModelMap<Arc<ModelRoutes>>,
    /// Set once the service has stopped or is about to.
    pub(crate) closed: Option<Failure>,
    /// Set while the limit is reached and unknown selectors are refused.
    pub(crate) full: Option<Failure>,
}

/// The routes of one model.
#[derive(Debug, Default)]
pub(crate) struct ModelRoutes {
    pub(crate) tags: HashMap<Tag, Entry>,
    pub(crate) digests: HashMap<Digest, Entry>,
}

/// The route of one tag or digest.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) route: Route,
    /// The last use by a request.
    pub(crate) asked: Arc<LastAsked>,
}

/// The answer to a request for a tag or digest.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// The servable.
    Ready(Arc<Servable>),
    /// Two servables that share the traffic in a trial.
    Split(Arc<Split<Servable>>),
    /// No servable yet; carries the current obstacle, if there is one.
    Waiting(Option<Failure>),
    /// The version failed and is tried again at this time.
    Retrying(Failure, Moment),
    /// The request fails at once.
    Refused(Failure),
}

/// A time written by requests and read by the machines: the last request for a selector, or the end
/// of a lease on it.
#[derive(Debug, Default)]
pub(crate) struct LastAsked {
    /// The time in milliseconds; 0 for never.
    at: AtomicU64,
    leases: AtomicUsize,
}

impl LastAsked {
    pub(crate) fn touch(&self, now: Moment) {
        let millis = u64::try_from(now.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Most requests in a millisecond find the value already set, and skip the write to avoid
        // contention for the cache line.
        if self.at.load(Relaxed) < millis {
            self.at.store(millis, Relaxed);
        }
    }

    /// Counts a new lease.
    pub(crate) fn lease(&self) {
        self.leases.fetch_add(1, Relaxed);
    }

    /// Counts the end of a lease.
    pub(crate) fn release(&self, now: Moment) {
        self.touch(now);
        // With this release, a reader that sees no lease also sees the time at which the last one
        // ended.
        self.leases.fetch_sub(1, Release);
    }

    /// The last time of use, as of `now`; `None` for never.
    pub(crate) fn get(&self, now: Moment) -> Option<Moment> {
        match (self.leases.load(Acquire), self.at.load(Relaxed)) {
            (0, 0) => None,
            (0, millis) => Some(Moment::at(Duration::from_millis(millis))),
            _ => Some(now),
        }
    }
}

impl Routes {
    /// The entry for `selector` of `model`.
    pub(crate) fn find(&self, model: &ModelName, selector: &Selector) -> Option<&Entry> {
        let model = self.models.get(model)?;
        match selector {
            Selector::Tag(tag) => model.tags.get(tag),
            Selector::Digest(digest) => model.digests.get(digest),
        }
    }
}
