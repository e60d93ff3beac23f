//! The states to write to the journal, by number. The numbers keep a slow write of an earlier state
//! from overwriting a later one.

use std::sync::Arc;

use outrigger_core::machines::Legacy;
use outrigger_trials::CanaryRecord;

/// The last states.
#[derive(Default)]
pub(crate) struct Journal {
    machines: (u64, Arc<Legacy>),
    /// The number of the trials' last state.
    trials: u64,
}

impl Journal {
    /// Takes the state of the machines. Returns true if it differs from the last one and must be
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

    /// Assigns the next number to a state of the trials.
    pub(crate) fn number_trials(&mut self) -> u64 {
        self.trials += 1;
        self.trials
    }

    /// The final states, numbered after all earlier ones.
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
