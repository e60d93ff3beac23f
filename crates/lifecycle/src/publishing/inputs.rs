//! The state that the outside view is built from.

use outrigger_core::{Moment, machines::Machines};
use outrigger_trials::Trials;

use crate::{trial_context::TrialContext, versions::VersionData, world::World};
use outrigger_run::Clock;

/// The state that the outside view is built from, at one moment.
pub(crate) struct Sources<'a> {
    pub(crate) world: &'a World,
    pub(crate) machines: &'a Machines,
    pub(crate) versions: &'a VersionData,
    pub(crate) trials: &'a Trials,
    pub(crate) clock: Clock,
    pub(crate) now: Moment,
}

impl<'a> Sources<'a> {
    /// The same state, in the form that the trials read.
    pub(crate) fn trial_context(&self) -> TrialContext<'a> {
        TrialContext { machines: self.machines, versions: self.versions, now: self.now }
    }
}
