//! The judge of a trial, which turns evidence into a verdict.

use outrigger_canary::{Course, Decider, Statistics, Verdict};
use outrigger_core::{Digest, machines::TagKey};

/// The evidence of one trial.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// The tag whose traffic is split.
    pub tag: &'a TagKey,
    /// The live version.
    pub live: Digest,
    /// The canary.
    pub canary: Digest,
    /// Counts and sketches of both arms' requests in this process.
    pub statistics: &'a Statistics,
    /// The time that has passed, and the recent rate of requests per second.
    pub course: Course,
    /// The sequential tests with the trial's settings, for these statistics or for a sum that
    /// includes them.
    pub decider: &'a Decider,
}

/// Decides about canaries. It is called for each trial once a second, and the trial follows its
/// verdict: it rolls back, promotes, or goes on.
pub trait Judge: Send + Sync {
    /// Judges the evidence.
    fn verdict(&mut self, evidence: &Evidence<'_>) -> Verdict;
}

/// Judges by the statistics of this process alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalJudge;

impl Judge for LocalJudge {
    fn verdict(&mut self, evidence: &Evidence<'_>) -> Verdict {
        evidence.decider.verdict(evidence.statistics, evidence.course)
    }
}
