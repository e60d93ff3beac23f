//! The states that are written to the journal, by number: a later state is never
//! overwritten by an earlier one whose writing takes longer.

use std::sync::Arc;

use outrigger_core::fleet::Legacy;
use outrigger_trials::CanaryRecord;

/// The last states.
#[derive(Default)]
pub(crate) struct Journal {
    machines: (u64, Arc<Legacy>),
    /// The number of the trials' last state.
    trials: u64,
}

impl Journal {
    /// Takes the machines' state. `true`: it is another than the last one, and is to be
    /// written.
    pub(crate) fn update(&mut self, legacy: Legacy) -> bool {
        let is_new = *self.machines.1 != legacy;
        if is_new {
            self.machines = (self.machines.0 + 1, Arc::new(legacy));
        }
        is_new
    }

    /// The machines' last state, and its number.
    pub(crate) fn machines(&self) -> (u64, Arc<Legacy>) {
        self.machines.clone()
    }

    /// Numbers a state of the trials.
    pub(crate) fn number_trials(&mut self) -> u64 {
        self.trials += 1;
        self.trials
    }

    /// The states at the end, numbered as the last ones.
    pub(crate) fn end(mut self, trials: CanaryRecord) -> LastStates {
        let (number, legacy) = self.machines();
        LastStates { machines: (number + 1, legacy), trials: (self.number_trials(), trials) }
    }
}

/// The last states of this process, with their numbers.
pub(crate) struct LastStates {
    pub(crate) machines: (u64, Arc<Legacy>),
    pub(crate) trials: (u64, CanaryRecord),
}
