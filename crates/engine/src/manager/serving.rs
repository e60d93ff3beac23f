//! The servables that requests can use, published as immutable sets.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex, mpsc},
};

use arc_swap::ArcSwap;

use crate::servable::ServableId;

/// One published set, with a signal for its last use.
struct Epoch<S> {
    servables: BTreeMap<String, BTreeMap<i64, Arc<S>>>,
    /// Dropped after the servables above; that disconnects the receiver.
    _alive: mpsc::Sender<()>,
}

/// The published set.
pub(super) struct Serving<S> {
    epoch: ArcSwap<Epoch<S>>,
    /// Disconnected when the published set has been dropped.
    gone: Mutex<mpsc::Receiver<()>>,
}

impl<S> Default for Serving<S> {
    fn default() -> Self {
        let (epoch, gone) = epoch(BTreeMap::new());
        Self { epoch: ArcSwap::new(epoch), gone: gone.into() }
    }
}

fn epoch<S>(
    servables: BTreeMap<String, BTreeMap<i64, Arc<S>>>,
) -> (Arc<Epoch<S>>, mpsc::Receiver<()>) {
    let (alive, gone) = mpsc::channel();
    (Arc::new(Epoch { servables, _alive: alive }), gone)
}

impl<S> Serving<S> {
    /// Takes a servable for one request; keeps its whole set alive.
    pub(super) fn handle(&self, name: &str, version: Option<i64>) -> Option<Handle<S>> {
        let epoch = self.epoch.load_full();
        let versions = epoch.servables.get(name)?;
        let (&version, servable) = match version {
            Some(version) => versions.get_key_value(&version)?,
            None => versions.last_key_value()?,
        };
        Some(Handle { version, servable: Arc::clone(servable), _epoch: epoch })
    }

    /// Replaces the set, and waits until the last request of the old set has ended, for
    /// whichever model.
    pub(super) fn publish(&self, ready: impl Iterator<Item = (ServableId, Arc<S>)>) {
        let mut servables: BTreeMap<String, BTreeMap<i64, Arc<S>>> = BTreeMap::new();
        for (id, servable) in ready {
            servables.entry(id.name).or_default().insert(id.version, servable);
        }
        let (new, new_gone) = epoch(servables);
        let mut gone = super::lock(&self.gone);
        drop(self.epoch.swap(new));
        // Nothing is sent on this channel: `recv` returns when the sender is dropped.
        let _ = gone.recv();
        *gone = new_gone;
    }
}

/// A servable in use by a request. While the handle lives, the servable stays in memory,
/// and `publish` waits.
pub struct Handle<S> {
    version: i64,
    // Dropped before the epoch, whose drop signals that the set is unused.
    servable: Arc<S>,
    _epoch: Arc<Epoch<S>>,
}

impl<S> Handle<S> {
    /// The servable's version.
    pub fn version(&self) -> i64 {
        self.version
    }
}

impl<S> Clone for Handle<S> {
    fn clone(&self) -> Self {
        let Self { version, servable, _epoch } = self;
        Self { version: *version, servable: Arc::clone(servable), _epoch: Arc::clone(_epoch) }
    }
}

impl<S> Deref for Handle<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.servable
    }
}
