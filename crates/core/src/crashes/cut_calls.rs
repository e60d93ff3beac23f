//! The calls that an engine's end cut off.

use std::collections::BTreeSet;

use super::{Crashes, MOST};
use crate::ModelKey;

/// The versions with calls that the end of an engine may have cut off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct CutCalls {
    /// Versions that had a call in flight.
    pub lost: BTreeSet<ModelKey>,
    /// Versions with a call whose caller ceased to wait for its answer shortly before the end. An
    /// engine does not stop a run at its deadline, so the run may have gone on until then.
    pub abandoned: BTreeSet<ModelKey>,
}

impl CutCalls {
    /// The versions to suspect for their calls. An abandoned call may have ended the engine as well
    /// as a lost one. But a version whose calls are always abandoned would be suspected for ever
    /// beside the one that ends the engine: after the crashes that convict a version, abandoned calls
    /// count only if no suspected version lost one.
    pub(crate) fn calling(&self, crashes: &Crashes) -> BTreeSet<ModelKey> {
        let is_late = crashes.calls >= crashes.scaled(MOST);
        let has_lost = !self.lost.is_disjoint(&crashes.common);
        if is_late && has_lost { self.lost.clone() } else { &self.lost | &self.abandoned }
    }
}
