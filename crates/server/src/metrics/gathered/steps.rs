//! How long versions have been in a step.

use outrigger_core::Step;
use outrigger_lifecycle::Snapshot;

/// Of each step the seconds that the version which got no further for the longest
/// time has been in it; 0 where none is.
pub(super) fn ages(snapshot: &Snapshot) -> [(Step, f64); Step::ALL.len()] {
    let age = |step| snapshot.steps.get(&step).map_or(0.0, |since| since.elapsed().as_secs_f64());
    Step::ALL.map(|step| (step, age(step)))
}
