//! The calls that hosts work on although their callers have given them up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use outrigger_rpc::Held;

use super::Key;

/// A host's number and a model.
type At = (usize, Key);

/// The calls that go on without their callers, by host and model. A host gets no more calls of a model
/// that has as many as it may have, so that no model takes a host from the others.
pub(crate) struct GivenUp {
    most: usize,
    calls: Mutex<HashMap<At, usize>>,
}

/// The place of a call at a host.
pub(crate) struct Place {
    of: Arc<GivenUp>,
    at: At,
    is_given_up: bool,
}

impl GivenUp {
    /// At most `most` calls of each model at each host.
    pub(crate) fn of_each(most: usize) -> Self {
        Self { most, calls: Mutex::default() }
    }

    pub(crate) fn is_full(&self, at: &At) -> bool {
        self.calls().get(at).is_some_and(|calls| *calls >= self.most)
    }

    /// The place of a call.
    pub(crate) fn place(this: &Arc<Self>, at: At) -> Place {
        Place { of: Arc::clone(this), at, is_given_up: false }
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<At, usize>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message is sent again in another form from the same place.
impl Clone for Place {
    fn clone(&self) -> Self {
        GivenUp::place(&self.of, self.at.clone())
    }
}

impl Held for Place {
    fn give_up(&mut self) {
        self.is_given_up = true;
        *self.of.calls().entry(self.at.clone()).or_default() += 1;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_given_up {
            return;
        }
        let mut calls = self.of.calls();
        let Some(count) = calls.get_mut(&self.at) else { return };
        *count -= 1;
        if *count == 0 {
            calls.remove(&self.at);
        }
    }
}
