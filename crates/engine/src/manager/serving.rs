//! The servables requests can have, as one immutable set at a time.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex, mpsc},
};

use arc_swap::ArcSwap;

use crate::servable::ServableId;

/// One set, and the news that nobody uses it any more.
struct Epoch<S> {
    servables: BTreeMap<String, BTreeMap<i64, Arc<S>>>,
    /// Dropped after the servables above; the receiver of it then wakes up.
    _alive: mpsc::Sender<()>,
}

/// The set in force.
pub(super) struct Serving<S> {
    epoch: ArcSwap<Epoch<S>>,
    /// Wakes up when that set is gone.
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
    /// A servable, and with it the whole set it belongs to, for one request.
    pub(super) fn handle(&self, name: &str, version: Option<i64>) -> Option<Handle<S>> {
        let epoch = self.epoch.load_full();
        let versions = epoch.servables.get(name)?;
        let (&version, servable) = match version {
            Some(version) => versions.get_key_value(&version)?,
            None => versions.last_key_value()?,
        };
        Some(Handle { version, servable: Arc::clone(servable), _epoch: epoch })
    }

    /// Replaces the set, and waits until the last request that began with the
    /// old one is done, whichever model it is for.
    pub(super) fn publish(&self, ready: impl Iterator<Item = (ServableId, Arc<S>)>) {
        let mut servables: BTreeMap<String, BTreeMap<i64, Arc<S>>> = BTreeMap::new();
        for (id, servable) in ready {
            servables.entry(id.name).or_default().insert(id.version, servable);
        }
        let (new, new_gone) = epoch(servables);
        let mut gone = super::lock(&self.gone);
        drop(self.epoch.swap(new));
        // Nothing is ever sent: this returns when the sender is dropped.
        let _ = gone.recv();
        *gone = new_gone;
    }
}

/// A servable in use by a request. While it lives, the servable stays in
/// memory, and no new set of servables takes full effect.
pub struct Handle<S> {
    version: i64,
    // Dropped before the epoch, which tells the manager that it is unused.
    servable: Arc<S>,
    _epoch: Arc<Epoch<S>>,
}

impl<S> Handle<S> {
    /// The version it turned out to be.
    pub fn version(&self) -> i64 {
        self.version
    }
}

impl<S> Deref for Handle<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.servable
    }
}
