//! Runs: one measurement, or as many as it takes to find a rate.

use std::time::Duration;

use crate::{
    Arrivals, Error, Job, Load, Observer, Report, Step,
    cpu::Times,
    measure::{Measured, Measurement, runtime},
    prepare::{Prepared, prepare},
    report::Phase,
    search::highest,
    worker::Pace,
};

/// How often a rate that was found is lowered when it is not confirmed, and to
/// which part.
const CONFIRMATIONS: usize = 6;
const LOWERED: f64 = 0.95;

/// Does what `job` says; blocks for as long as that takes.
///
/// # Errors
/// Before the run: the server is not there, or refuses the first request.
/// Failures during the run are counted, and no error.
pub fn run(job: &Job, observer: &mut Observer<'_>) -> Result<Report, Error> {
    // A process that is not there is told before anything is sent.
    Times::read(&job.processes)?;
    let prepared = runtime()?.block_on(prepare(job))?;
    let (mode, pace) = match job.load {
        Load::Rate { rate, arrivals } => ("rate", Pace::Open { rate, arrivals }),
        Load::Max => ("max", Pace::Closed),
        Load::FindRate { p99, step, arrivals } => {
            let prepared = &prepared;
            return Search { job, prepared, p99, step, arrivals, steps: Vec::new() }.run(observer);
        }
    };
    let measurement = Measurement { pace, warmup: job.warmup, duration: job.duration };
    let measured = measurement.run(job, &prepared, observer)?;
    Ok(Report::new(mode, pace.rate(), &prepared, measured))
}

/// A search for the highest rate.
struct Search<'a> {
    job: &'a Job,
    prepared: &'a Prepared,
    p99: Duration,
    step: Duration,
    arrivals: Arrivals,
    steps: Vec<Step>,
}

impl Search<'_> {
    fn run(mut self, observer: &mut Observer<'_>) -> Result<Report, Error> {
        let estimate = self.measure(Phase::Estimate, Pace::Closed, self.step, observer)?;
        let first = estimate.throughput();
        let found = highest(first, |rate| {
            let pace = Pace::Open { rate, arrivals: self.arrivals };
            let measured = self.measure(Phase::Search, pace, self.step, observer)?;
            Ok::<_, Error>(self.held(&measured))
        })?;
        let mut rate = found.ok_or_else(|| self.not_held())?;
        for _ in 0..CONFIRMATIONS {
            let pace = Pace::Open { rate, arrivals: self.arrivals };
            let measured = self.measure(Phase::Confirm, pace, self.job.duration, observer)?;
            if self.held(&measured) {
                let report = Report::new("find-rate", Some(rate), self.prepared, measured);
                return Ok(Report { steps: self.steps, ..report });
            }
            rate *= LOWERED;
        }
        Err(self.not_held())
    }

    fn measure(
        &mut self,
        phase: Phase,
        pace: Pace,
        duration: Duration,
        observer: &mut Observer<'_>,
    ) -> Result<Measured, Error> {
        let warmup = self.job.warmup.min(duration / 5);
        let measurement = Measurement { pace, warmup, duration };
        let measured = measurement.run(self.job, self.prepared, observer)?;
        self.steps.push(Step::new(phase, pace, &measured, self.held(&measured)));
        Ok(measured)
    }

    fn not_held(&self) -> Error {
        Error::NotHeld(self.steps.last().expect("the estimate is one").clone())
    }

    /// Whether requests were answered, none failed, and the latency stayed where
    /// it should.
    fn held(&self, Measured { tally, .. }: &Measured) -> bool {
        let p99 = Duration::from_nanos(tally.latency.value_at_quantile(0.99));
        tally.ok > 0 && tally.failed() == 0 && p99 < self.p99
    }
}
