//! Writes of the trials to the journal.

use std::time::{Duration, SystemTime};

use outrigger_core::{Moment, machines::TagKey};

use super::Trials;
use crate::{
    record::{CanaryRecord, Decided},
    set::TrialSet,
};

/// The interval between writes of the trials' elapsed times.
const PERIOD: Duration = Duration::from_secs(10);

/// The last write.
#[derive(Debug, Default)]
pub(super) struct Journal {
    at: Moment,
    shape: Shape,
}

/// The state whose change causes an immediate write.
type Shape = (Vec<(TagKey, u64, usize, Option<Decided>)>, usize, Option<SystemTime>);

impl Journal {
    /// True if a write is due; if so, it counts as done.
    fn is_due(&mut self, set: &TrialSet, now: Moment) -> bool {
        let shape = shape(set);
        let overdue = !shape.0.is_empty() && now.since(self.at) >= PERIOD;
        if self.shape == shape && !overdue {
            return false;
        }
        *self = Self { at: now, shape };
        true
    }
}

fn shape(set: &TrialSet) -> Shape {
    let running = set.running.iter();
    let running =
        running.map(|(key, it)| (key.clone(), it.number, it.trial.step(), it.promotion.decided()));
    let decisions = &set.decisions.0;
    (running.collect(), decisions.len(), decisions.front().map(|latest| latest.at))
}

impl Trials {
    /// Restores the trials and decisions of an earlier process.
    pub fn restore(&mut self, record: CanaryRecord) {
        (self.set.paused, self.set.decisions.0) = record.into_parts();
    }

    /// The trials and decisions, for a later process.
    pub fn record(&self, now: Moment) -> CanaryRecord {
        let running = self.set.running.iter();
        let running = running.map(|(key, it)| (key.clone(), it.paused(now)));
        // Paused trials may go on in the next process.
        let paused = self.set.paused.iter().map(|(key, it)| (key.clone(), it.clone()));
        CanaryRecord::new(running.chain(paused), self.set.decisions.0.clone())
    }

    /// The trials and decisions to be written: when they have changed, and at least every ten seconds.
    /// `None` if no write is due.
    #[must_use]
    pub fn take_record(&mut self, now: Moment) -> Option<CanaryRecord> {
        self.journal.is_due(&self.set, now).then(|| self.record(now))
    }
}
