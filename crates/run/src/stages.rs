//! The times of the stages of a run.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The time that each named stage of a run took. A model names the stages that it has, and reports
/// their times; the caller reads them after the run. Clones share the times.
///
/// The default records nothing, and costs nothing.
#[derive(Debug, Clone, Default)]
pub struct StageTimes(Option<Arc<Mutex<Times>>>);

type Times = Vec<(&'static str, Duration)>;

impl StageTimes {
    /// Times that are recorded.
    pub fn recorded() -> Self {
        Self(Some(Arc::default()))
    }

    /// Times that are recorded if those of any of `others` are.
    pub fn recorded_for<'a>(others: impl IntoIterator<Item = &'a Self>) -> Self {
        let is_recorded = others.into_iter().any(|other| other.0.is_some());
        if is_recorded { Self::recorded() } else { Self::default() }
    }

    /// Adds time of a stage. A stage that takes place several times, such as once for each part of a
    /// divided call, has the sum of its times.
    pub fn add(&self, stage: &'static str, took: Duration) {
        let Some(mut times) = self.times() else { return };
        match times.iter_mut().find(|(name, _)| *name == stage) {
            Some((_, time)) => *time += took,
            None => times.push((stage, took)),
        }
    }

    /// Adds the times of all stages of `other`.
    pub fn add_all(&self, other: &Self) {
        // The times are copied, so that only one of the two is locked at a time.
        let times = other.times().map(|times| times.clone());
        times.iter().flatten().for_each(|(stage, took)| self.add(stage, *took));
    }

    /// The time of a stage, if a model has reported it and it is recorded.
    pub fn get(&self, stage: &str) -> Option<Duration> {
        let times = self.times()?;
        times.iter().find(|(name, _)| *name == stage).map(|(_, took)| *took)
    }

    fn times(&self) -> Option<MutexGuard<'_, Times>> {
        self.0.as_ref().map(|times| times.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn clones_add_up_the_times_of_each_stage() {
        let times = StageTimes::recorded();
        times.add("first", SECOND);
        times.clone().add("second", 2 * SECOND);
        times.clone().add("first", 3 * SECOND);
        assert_eq!(times.get("first"), Some(4 * SECOND));
        assert_eq!(times.get("second"), Some(2 * SECOND));
        assert_eq!(times.get("third"), None);
    }

    #[test]
    fn the_default_records_nothing() {
        let times = StageTimes::default();
        times.add("first", SECOND);
        assert_eq!(times.get("first"), None);
    }

    #[test]
    fn the_times_of_one_run_are_added_to_those_of_several_calls() {
        let calls = [StageTimes::recorded(), StageTimes::default()];
        let run = StageTimes::recorded_for(&calls);
        run.add("first", SECOND);
        calls[0].add("first", SECOND);
        calls.iter().for_each(|call| call.add_all(&run));
        assert_eq!(calls.map(|call| call.get("first")), [Some(2 * SECOND), None]);
        let run = StageTimes::recorded_for(&[StageTimes::default()]);
        run.add("first", SECOND);
        assert_eq!(run.get("first"), None);
    }
}
