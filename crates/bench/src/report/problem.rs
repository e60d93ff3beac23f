//! Missing results of a run, and failures.

use super::Report;

impl Report {
    /// The reason why the run is not a success; `None` if it is one, or if it was
    /// interrupted.
    pub fn problem(&self) -> Option<String> {
        if self.interrupted {
            return None;
        }
        if let Some(reason) = &self.abandoned {
            return Some(format!("the search has ended early: {reason}"));
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
            return Some(format!("{ended} has ended during the run: its CPU time is unknown"));
        }
        None
    }
}
