//! Searches for the highest rate at which no request fails and the latency stays under
//! its limit.

use std::time::Duration;

use crate::{
    Arrivals, Error,
    measure::Measured,
    report::{Phase, Step},
    search::{highest, lasting},
    worker::Pace,
};

/// The share of requests that must be answered while others become due. A lower share
/// means that requests queue up.
const ANSWERED: f64 = 0.99;

/// The conditions that a rate must meet, and the lengths of its trials.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    /// Upper limit of the latency's 99th percentile.
    pub(crate) p99: Duration,
    /// Duration of a trial.
    pub(crate) step: Duration,
    /// Duration of the confirmation of the rate that was found.
    pub(crate) duration: Duration,
    pub(crate) arrivals: Arrivals,
}

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Found {
    /// The rate that was confirmed, if any.
    pub(crate) rate: Option<f64>,
    /// The measurement that confirmed the rate; without one, the last measurement.
    pub(crate) measured: Measured,
    pub(crate) steps: Vec<Step>,
    /// The error that ended the search early.
    pub(crate) abandoned: Option<Error>,
}

impl Goal {
    /// Searches for the rate; `measure` tries one for a given duration.
    ///
    /// # Errors
    /// The error of the first measurement. Later errors end the search and are part of
    /// its result.
    pub(crate) fn find(
        self,
        mut measure: impl FnMut(Phase, Pace, Duration) -> Result<Measured, Error>,
    ) -> Result<Found, Error> {
        let last = measure(Phase::Estimate, Pace::Closed, self.step)?;
        let estimate = last.throughput();
        let held = self.is_kept_by(&last);
        let steps = vec![Step::new(Phase::Estimate, Pace::Closed, &last, held)];
        let mut search = Search { goal: self, measure, confirmed: None, last, steps };
        let (rate, abandoned) = match search.run(estimate) {
            Ok(rate) => (rate, None),
            Err(error) => (None, Some(error)),
        };
        let measured = search.confirmed.filter(|_| rate.is_some()).unwrap_or(search.last);
        Ok(Found { rate, measured, steps: search.steps, abandoned })
    }

    /// Whether requests were answered as fast as they were due, none failed, and the
    /// latency stayed under its limit.
    fn is_kept_by(&self, Measured { tally, interrupted, .. }: &Measured) -> bool {
        let p99 = Duration::from_nanos(tally.latency.value_at_quantile(0.99));
        // One request may always be in flight.
        let kept_up = (tally.answered + 1) as f64 >= tally.ok as f64 * ANSWERED;
        !interrupted && tally.ok > 0 && tally.failed() == 0 && kept_up && p99 < self.p99
    }
}

struct Search<M> {
    goal: Goal,
    measure: M,
    /// The last confirmation that held.
    confirmed: Option<Measured>,
    /// The last measurement that is not a confirmation that held.
    last: Measured,
    steps: Vec<Step>,
}

impl<M: FnMut(Phase, Pace, Duration) -> Result<Measured, Error>> Search<M> {
    /// The rate that was confirmed, if any.
    fn run(&mut self, estimate: f64) -> Result<Option<f64>, Error> {
        self.check_interrupt()?;
        match highest(estimate, |rate| self.holds(rate, Phase::Search))? {
            Some(found) => lasting(found, |rate| self.holds(rate, Phase::Confirm)),
            None => Ok(None),
        }
    }

    fn holds(&mut self, rate: f64, phase: Phase) -> Result<bool, Error> {
        let pace = Pace::Open { rate, arrivals: self.goal.arrivals };
        let duration = match phase {
            Phase::Estimate | Phase::Search => self.goal.step,
            Phase::Confirm => self.goal.duration,
        };
        let measured = (self.measure)(phase, pace, duration)?;
        let held = self.goal.is_kept_by(&measured);
        self.steps.push(Step::new(phase, pace, &measured, held));
        if held && phase == Phase::Confirm {
            self.confirmed = Some(measured);
        } else {
            self.last = measured;
            self.check_interrupt()?;
        }
        Ok(held)
    }

    /// # Errors
    /// The last measurement was interrupted.
    fn check_interrupt(&self) -> Result<(), Error> {
        if self.last.interrupted { Err(Error::Interrupted) } else { Ok(()) }
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

    /// A measurement at `rate` of which `throughput` requests a second were answered
    /// within the duration, all with the same latency.
    fn answers(rate: f64, throughput: f64, duration: Duration, latency: Duration) -> Measured {
        let [ok, answered] =
            [rate, throughput].map(|rate| (rate * duration.as_secs_f64()).round() as u64);
        let mut tally = Tally { ok, answered, ..Tally::default() };
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap();
        tally.latency.record_n(nanoseconds, ok).unwrap();
        measured(tally, duration)
    }

    fn measured(tally: Tally, duration: Duration) -> Measured {
        let (cpu_seconds_per_request, ended_processes, interrupted) = Default::default();
        Measured { tally, duration, cpu_seconds_per_request, ended_processes, interrupted }
    }

    const FAST: Duration = Duration::from_millis(1);
    const SLOW: Duration = Duration::from_millis(20);

    /// A server that is late above `capacity`, and above a lower rate if the load lasts
    /// longer than a step.
    fn server(capacity: f64, pace: Pace, duration: Duration) -> Measured {
        let bound = if duration > GOAL.step { capacity / 1.1 } else { capacity };
        match pace.rate() {
            None => answers(capacity * 1.5, capacity * 1.5, duration, SLOW),
            Some(rate) if rate > bound => answers(rate, rate, duration, SLOW),
            Some(rate) => answers(rate, rate, duration, FAST),
        }
    }

    #[test]
    fn a_rate_is_confirmed_and_lowered_until_it_holds() {
        let found = GOAL.find(|_, pace, duration| Ok(server(1000.0, pace, duration))).unwrap();
        let rate = found.rate.unwrap();
        assert!((1000.0 / 1.3..=1000.0 / 1.1).contains(&rate), "{rate}");
        assert_eq!(found.measured.tally.ok, (rate * 10.0).round() as u64);
        let phase = |phase| found.steps.iter().filter(move |step| step.phase == phase);
        assert_eq!(phase(Phase::Estimate).count(), 1);
        assert!(phase(Phase::Search).all(|step| step.held == (step.offered_rate <= Some(1000.0))));
        let confirmed: Vec<_> = phase(Phase::Confirm).map(|step| step.held).collect();
        let (last, before) = confirmed.split_last().expect("a confirmation");
        assert!(*last && (2..=4).contains(&before.len()) && !before.contains(&true));
        assert_eq!(found.measured.duration, GOAL.duration);
    }

    #[test]
    fn a_rate_with_one_failure_is_not_held() {
        let found = GOAL.find(|_, _, duration| {
            let mut measured = answers(10.0, 10.0, duration, FAST);
            measured.tally.fail(Failure::timeout());
            Ok(measured)
        });
        let found = found.unwrap();
        let refused = |step: &Step| !step.held && step.errors["CLIENT_TIMEOUT"] == 1;
        assert!(found.rate.is_none() && found.steps.iter().all(refused), "{found:?}");
    }

    #[test]
    fn a_rate_above_the_throughput_is_not_held() {
        // The queue has not yet grown enough to exceed the latency's limit.
        let found = GOAL.find(|_, pace, duration| {
            let due = pace.rate().unwrap_or(2000.0);
            Ok(answers(due, due.min(1000.0), duration, FAST))
        });
        let rate = found.unwrap().rate.unwrap();
        assert!((1000.0 / 1.031..=1000.0 / ANSWERED + 1.0).contains(&rate), "{rate}");
    }

    #[test]
    fn a_rate_without_answers_is_not_held() {
        let silent = |_, _, duration| Ok(measured(Tally::default(), duration));
        let found = GOAL.find(silent).unwrap();
        assert_eq!((found.rate, found.abandoned.is_none()), (None, true), "{found:?}");
    }

    #[test]
    fn steps_before_an_error_are_kept() {
        let gone = || Error::Request("gone".to_owned());
        let steps_before = |end: usize| {
            let mut left = end;
            GOAL.find(|_, pace, duration| {
                left = left.checked_sub(1).ok_or_else(gone)?;
                Ok(server(1000.0, pace, duration))
            })
        };
        assert!(steps_before(0).is_err());
        let found = steps_before(3).unwrap();
        assert_eq!((found.rate, found.steps.len()), (None, 3));
        assert_eq!(found.abandoned.unwrap().to_string(), "gone");
    }
}
