//! The state that the outside view is built from.

use outrigger_core::{Moment, fleet::Fleet};
use outrigger_trials::Trials;

use crate::{trial_context::TrialContext, versions::VersionData, world::World};
use outrigger_run::Clock;

/// The state that the outside view is built from, at one moment.
pub(crate) struct Sources<'a> {
    pub(crate) world: &'a World,
    pub(crate) fleet: &'a Fleet,
    pub(crate) versions: &'a VersionData,
    pub(crate) trials: &'a Trials,
    pub(crate) clock: Clock,
    pub(crate) now: Moment,
}

impl<'a> Sources<'a> {
    /// The same state, in the form that the trials read.
    pub(crate) fn trial_context(&self) -> TrialContext<'a> {
        TrialContext { fleet: self.fleet, versions: self.versions, now: self.now }
    }
}
