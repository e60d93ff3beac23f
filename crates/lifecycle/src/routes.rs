//! The routing table: an immutable snapshot that requests read without a lock.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use outrigger_core::{Digest, Failure, ModelName, Moment, Selector, Tag};

use crate::lease::Servable;

/// Everything that can be asked for, and what is to be answered.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub(crate) models: HashMap<ModelName, ModelRoutes>,
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

/// What a request for a tag or digest gets.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// This servable.
    Ready(Arc<Servable>),
    /// Nothing yet; the failure that stands in the way for the moment.
    Waiting(Option<Failure>),
    /// A failure, at once.
    Refused(Failure),
}

/// A time that requests set and the machines read.
#[derive(Debug, Default)]
pub(crate) struct LastAsked(AtomicU64);

impl LastAsked {
    pub(crate) fn touch(&self, now: Moment) {
        let millis = u64::try_from(now.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Most requests of a millisecond find it set: do not fight for the line.
        if self.0.load(Relaxed) < millis {
            self.0.store(millis, Relaxed);
        }
    }

    /// `None`: never.
    pub(crate) fn get(&self) -> Option<Moment> {
        match self.0.load(Relaxed) {
            0 => None,
            millis => Some(Moment::at(Duration::from_millis(millis))),
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
