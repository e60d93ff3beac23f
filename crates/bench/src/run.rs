//! Runs a job: one measurement, or a search for a rate.

use std::time::Duration;

use crate::{
    Error, Job, Load, Observer, Report, cpu,
    find_rate::Goal,
    measure::{Measurement, runtime},
    prepare::prepare,
    worker::Pace,
};

/// Runs `job`; blocks until it has ended.
///
/// # Errors
/// Before the run: the job is impossible, the server is not there, or it refuses the
/// first request.
/// Failures during the run are counted, and no error.
pub fn run(job: &Job, observer: &mut Observer<'_>) -> Result<Report, Error> {
    // Impossible options are reported before anything is sent.
    job.check()?;
    cpu::find(&job.processes)?;
    let prepared = runtime()?.block_on(async {
        tokio::select! {
            prepared = prepare(job) => prepared,
            _ = job.stop.requested() => Err(Error::Interrupted),
        }
    })?;
    let mut measure = |measurement: Measurement| measurement.run(job, &prepared, observer);
    let mut once = |pace| {
        let (warmup, duration) = (job.warmup, job.duration);
        measure(Measurement { phase: None, pace, warmup, duration })
    };
    match job.load {
        Load::Rate { rate, arrivals } => {
            let measured = once(Pace::Open { rate, arrivals })?;
            Ok(Report::new(job, Some(rate), &prepared, measured))
        }
        Load::Max => Ok(Report::new(job, None, &prepared, once(Pace::Closed)?)),
        Load::FindRate { p99, step, arrivals } => {
            let goal = Goal { p99, step, duration: job.duration, arrivals };
            // The warm-up of a step should be short compared with the step. But its
            // window must begin after the first answers have arrived: only then does the
            // number of answers match that of requests.
            let warmup = |duration: Duration| job.warmup.min(duration / 5).max(p99);
            let found = goal.find(|phase, pace, duration| {
                let (phase, warmup) = (Some(phase), warmup(duration));
                measure(Measurement { phase, pace, warmup, duration })
            })?;
            let abandoned = found.abandoned.map(|error| error.to_string());
            let report = Report::new(job, found.rate, &prepared, found.measured);
            Ok(Report { steps: found.steps, abandoned, ..report })
        }
    }
}
