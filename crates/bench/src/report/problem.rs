//! What a run has not shown, or what it has shown that is not well.

use super::Report;

impl Report {
    /// Why the run is no success; none if it is one, or was stopped before it could be.
    pub fn problem(&self) -> Option<String> {
        if self.interrupted {
            return None;
        }
        if let Some(reason) = &self.abandoned {
            return Some(format!("the search has not got to its end: {reason}"));
        }
        if let (Some(step), None) = (self.steps.last(), self.offered_rate) {
            return Some(format!("no rate is held; the last one tried: {step}"));
        }
        if self.ok == 0 {
            return Some(format!("none of {} requests was answered", self.requests));
        }
        let failed = self.requests - self.ok;
        if failed > 0 {
            return Some(format!("{failed} of {} requests failed", self.requests));
        }
        if !self.ended_processes.is_empty() {
            let ended = self.ended_processes.join(", ");
            return Some(format!("{ended} has ended during the run: its CPU time is not known"));
        }
        None
    }
}
