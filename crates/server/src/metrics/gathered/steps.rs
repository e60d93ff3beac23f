//! Ages of lifecycle steps.

use outrigger_core::Step;
use outrigger_lifecycle::Snapshot;

/// For each step, the age in seconds of the version that has been in it longest; 0 if no version is
/// in it.
pub(super) fn ages(snapshot: &Snapshot) -> [(Step, f64); Step::ALL.len()] {
    let age = |step| snapshot.steps.get(&step).map_or(0.0, |since| since.elapsed().as_secs_f64());
    Step::ALL.map(|step| (step, age(step)))
}
