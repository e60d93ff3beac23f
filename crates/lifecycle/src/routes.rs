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

use crate::lease::Servable;

/// Everything that can be asked for, and what is to be answered.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub(crate) models: HashMap<ModelName, Arc<ModelRoutes>>,
    /// Set once the service has stopped or is about to.
    pub(crate) closed: Option<Failure>,
    /// Set while nothing unknown is taken any more.
    pub(crate) full: Option<Failure>,
}

/// The routes of one model.
#[derive(Debug, Default)]
pub(crate) struct ModelRoutes {
    pub(crate) tags: HashMap<Tag, Entry>,
    pub(crate) digests: HashMap<Digest, Entry>,
}

/// One tag or digest.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) route: Route,
    /// When it was last asked for.
    pub(crate) asked: Arc<LastAsked>,
}

/// The route of a request for a tag or digest.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// This servable.
    Ready(Arc<Servable>),
    /// One of two, which are on trial.
    Split(Arc<Split<Servable>>),
    /// Nothing yet; the failure that stands in the way for the moment.
    Waiting(Option<Failure>),
    /// It failed, and is tried again then.
    Retrying(Failure, Moment),
    /// A failure, at once.
    Refused(Failure),
}

/// A time that requests set and the machines read: when something was asked
/// for, or a lease on it ended.
#[derive(Debug, Default)]
pub(crate) struct LastAsked {
    /// Milliseconds of the moment; 0: never.
    at: AtomicU64,
    leases: AtomicUsize,
}

impl LastAsked {
    pub(crate) fn touch(&self, now: Moment) {
        let millis = u64::try_from(now.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Most requests of a millisecond find it set: do not fight for the line.
        if self.at.load(Relaxed) < millis {
            self.at.store(millis, Relaxed);
        }
    }

    /// A lease begins.
    pub(crate) fn lease(&self) {
        self.leases.fetch_add(1, Relaxed);
    }

    /// A lease has ended.
    pub(crate) fn release(&self, now: Moment) {
        self.touch(now);
        // A reader that sees no lease also sees when the last one ended.
        self.leases.fetch_sub(1, Release);
    }

    /// When it was last in use, as of `now`; `None`: never.
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
