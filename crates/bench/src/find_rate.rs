//! The highest rate at which no request fails and the latency stays where it
//! should.

use std::time::Duration;

use crate::{
    Arrivals, Error,
    measure::Measured,
    report::{Phase, Step},
    search::highest,
    worker::Pace,
};

/// How often a rate that was found is lowered when it is not confirmed, and to
/// which part.
const CONFIRMATIONS: usize = 4;
const LOWERED: f64 = 0.9;

/// What a rate must keep, and how it is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    /// What the 99th percentile of the latency must stay under.
    pub(crate) p99: Duration,
    /// How long a rate is tried.
    pub(crate) step: Duration,
    /// How long the one that is found must be held.
    pub(crate) duration: Duration,
    pub(crate) arrivals: Arrivals,
}

/// A rate that was held, and how it was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) rate: f64,
    pub(crate) measured: Measured,
    pub(crate) steps: Vec<Step>,
}

impl Goal {
    /// Finds the rate; `measure` tries one for a while.
    ///
    /// # Errors
    /// Those of `measure`, and [`Error::NotHeld`].
    pub(crate) fn find(
        self,
        measure: impl FnMut(Pace, Duration) -> Result<Measured, Error>,
    ) -> Result<Found, Error> {
        let mut search = Search { goal: self, measure, steps: Vec::new() };
        let estimate = search.measure(Phase::Estimate, Pace::Closed)?;
        let found = highest(estimate.throughput(), |rate| search.holds(rate))?;
        let mut rate = found.ok_or_else(|| search.not_held())?;
        for _ in 0..CONFIRMATIONS {
            let measured = search.measure(Phase::Confirm, search.pace(rate))?;
            if self.is_kept_by(&measured) {
                return Ok(Found { rate, measured, steps: search.steps });
            }
            rate *= LOWERED;
        }
        Err(search.not_held())
    }

    /// Whether requests were answered, none failed, and the latency stayed where
    /// it should.
    fn is_kept_by(&self, Measured { tally, .. }: &Measured) -> bool {
        let p99 = Duration::from_nanos(tally.latency.value_at_quantile(0.99));
        tally.ok > 0 && tally.failed() == 0 && p99 < self.p99
    }
}

struct Search<M> {
    goal: Goal,
    measure: M,
    steps: Vec<Step>,
}

impl<M: FnMut(Pace, Duration) -> Result<Measured, Error>> Search<M> {
    fn holds(&mut self, rate: f64) -> Result<bool, Error> {
        let measured = self.measure(Phase::Search, self.pace(rate))?;
        Ok(self.goal.is_kept_by(&measured))
    }

    fn measure(&mut self, phase: Phase, pace: Pace) -> Result<Measured, Error> {
        let duration = match phase {
            Phase::Estimate | Phase::Search => self.goal.step,
            Phase::Confirm => self.goal.duration,
        };
        let measured = (self.measure)(pace, duration)?;
        self.steps.push(Step::new(phase, pace, &measured, self.goal.is_kept_by(&measured)));
        Ok(measured)
    }

    fn pace(&self, rate: f64) -> Pace {
        Pace::Open { rate, arrivals: self.goal.arrivals }
    }

    fn not_held(&self) -> Error {
        Error::NotHeld(self.steps.last().expect("the estimate is one").clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{failure::Failure, tally::Tally};

    const GOAL: Goal = Goal {
        p99: Duration::from_millis(20),
        step: Duration::from_secs(1),
        duration: Duration::from_secs(10),
        arrivals: Arrivals::Fixed,
    };

    /// As many answers a second, each this late.
    fn answers(throughput: f64, duration: Duration, latency: Duration) -> Measured {
        let mut tally = Tally { ok: 100, ..Tally::default() };
        tally.answered = (throughput * duration.as_secs_f64()) as u64;
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap();
        tally.latency.record_n(nanoseconds, 100).unwrap();
        measured(tally, duration)
    }

    fn measured(tally: Tally, duration: Duration) -> Measured {
        let (cpu_seconds_per_request, ended_processes) = Default::default();
        Measured { tally, duration, cpu_seconds_per_request, ended_processes }
    }

    /// A server that is late above `capacity`, and sooner when that lasts longer
    /// than a step.
    fn server(capacity: f64, pace: Pace, duration: Duration) -> Measured {
        let (fast, slow) = (Duration::from_millis(1), Duration::from_millis(20));
        let bound = if duration > GOAL.step { capacity / 1.1 } else { capacity };
        match pace.rate() {
            None => answers(capacity * 1.5, duration, slow),
            Some(rate) if rate > bound => answers(capacity, duration, slow),
            Some(rate) => answers(rate, duration, fast),
        }
    }

    #[test]
    fn what_is_found_is_confirmed_and_lowered_until_it_holds() {
        let found = GOAL.find(|pace, duration| Ok(server(1000.0, pace, duration))).unwrap();
        assert!((1000.0 / 1.2..=1000.0 / 1.1).contains(&found.rate), "{}", found.rate);
        let phase = |phase| found.steps.iter().filter(move |step| step.phase == phase);
        assert_eq!(phase(Phase::Estimate).count(), 1);
        assert!(phase(Phase::Search).all(|step| step.held == (step.offered_rate <= Some(1000.0))));
        let confirmed: Vec<_> = phase(Phase::Confirm).map(|step| step.held).collect();
        assert!(confirmed.len() > 1 && confirmed.ends_with(&[false, true]), "{confirmed:?}");
        assert_eq!(found.measured.duration, GOAL.duration);
    }

    #[test]
    fn a_rate_with_one_failure_is_not_held() {
        let error = GOAL.find(|_, duration| {
            let mut measured = answers(10.0, duration, Duration::from_millis(1));
            measured.tally.fail(Failure::timeout());
            Ok(measured)
        });
        let Err(Error::NotHeld(step)) = error else { panic!("none is held") };
        assert_eq!((step.held, step.errors["CLIENT_TIMEOUT"]), (false, 1));
    }

    #[test]
    fn silence_is_not_held() {
        let silent = |_, duration| Ok(measured(Tally::default(), duration));
        assert!(matches!(GOAL.find(silent), Err(Error::NotHeld(_))));
    }
}
