//! A measurement: sending threads, a window of time in which requests count, and the
//! figures at its ends.

use std::{
    collections::BTreeMap,
    io,
    panic::resume_unwind,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Builder, Runtime},
    time::interval,
};

use crate::{
    Error, Job, Stop,
    client::Client,
    cores,
    cpu::Times,
    prepare::Prepared,
    progress::{Figures, Observer, Progress},
    report::Phase,
    tally::{Tally, Window},
    worker::{Pace, Worker},
};

/// Time for the threads to start.
const LEAD: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_secs(1);

/// The parameters of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measurement {
    /// Its purpose within a search for a rate.
    pub(crate) phase: Option<Phase>,
    pub(crate) pace: Pace,
    /// Duration of the load before the window; its requests are not counted.
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
}

/// The results of a measurement.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    pub(crate) duration: Duration,
    pub(crate) cpu_seconds_per_request: BTreeMap<String, Option<f64>>,
    /// Processes that ended during the measurement.
    pub(crate) ended_processes: Vec<String>,
    /// Whether the measurement was stopped early.
    pub(crate) interrupted: bool,
}

impl Measured {
    /// Answers per second.
    pub(crate) fn throughput(&self) -> f64 {
        if self.duration.is_zero() {
            return 0.0;
        }
        self.tally.answered as f64 / self.duration.as_secs_f64()
    }
}

impl Measurement {
    /// Sends the prepared requests, and waits for all answers.
    ///
    /// # Errors
    /// The server cannot be reached any more.
    pub(crate) fn run(
        &self,
        job: &Job,
        prepared: &Prepared,
        observer: &mut Observer<'_>,
    ) -> Result<Measured, Error> {
        let over = Stop::default();
        let workers = (0..job.threads).map(|index| self.worker(job, prepared, index, &over));
        let workers = workers.collect::<Result<Vec<_>, _>>()?;
        let tallies: Vec<_> = workers.iter().map(|(_, worker)| Arc::clone(&worker.tally)).collect();
        let begin = Instant::now() + LEAD;
        let start = begin + self.warmup;
        let mut window = Window { start, end: start + self.duration };
        let threads: Vec<_> = workers
            .into_iter()
            .map(|(runtime, worker)| thread::spawn(move || work(&runtime, worker, begin, window)))
            .collect();
        let times = runtime()?.block_on(async {
            tokio::select! {
                never = over.follow(&job.stop) => match never {},
                times = self.watch(job, &over, window, &tallies, observer) => times,
            }
        });
        for thread in threads {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        }
        let (before, after) = times;
        let mut tally = Tally::default();
        for other in &tallies {
            tally.merge(&other.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let cpu_seconds_per_request = after.per_request(&before, tally.ended);
        let ended_processes = after.ended();
        over.moment().into_iter().for_each(|moment| window.cut(moment));
        let duration = window.duration();
        let interrupted = duration < self.duration && job.stop.moment().is_some();
        Ok(Measured { tally, duration, cpu_seconds_per_request, ended_processes, interrupted })
    }

    /// Creates a worker with its connections, and the runtime that drives them.
    fn worker(
        &self,
        job: &Job,
        prepared: &Prepared,
        index: usize,
        over: &Stop,
    ) -> Result<(Runtime, Worker), Error> {
        let runtime = runtime()?;
        let connections = share(job.connections, index, job.threads);
        let client = Client::open(&job.server, prepared.protocol, connections, job.frame);
        let client = runtime.block_on(client).map_err(|failure| job.unreachable(failure))?;
        let worker = Worker {
            client,
            messages: Arc::clone(&prepared.messages),
            pace: self.pace,
            in_flight: share(job.in_flight(self.pace.rate().is_some()), index, job.threads),
            timeout: job.timeout,
            share: (index, job.threads),
            tally: Arc::default(),
            stop: over.clone(),
        };
        Ok((runtime, worker))
    }

    /// Reads CPU times at both ends of the window, and reports progress before and within
    /// it.
    async fn watch(
        &self,
        job: &Job,
        over: &Stop,
        window: Window,
        tallies: &[Arc<Mutex<Tally>>],
        observer: &mut Observer<'_>,
    ) -> (Times, Times) {
        let begin = window.start - self.warmup;
        each_second(over, begin, window.start, |now| {
            observer(&self.progress(now - begin, None));
        })
        .await;
        let before = Times::read(&job.processes);
        let mut figures = None;
        each_second(over, window.start + TICK, window.end, |now| {
            let latest = Figures::read(figures, tallies);
            figures = Some(latest);
            observer(&self.progress(now - window.start, figures));
            if self.is_lost(latest) {
                over.stop();
            }
        })
        .await;
        (before, Times::read(&job.processes))
    }

    /// Whether a trial of a rate has already failed: one failed request is enough.
    fn is_lost(&self, figures: Figures) -> bool {
        matches!(self.phase, Some(Phase::Search | Phase::Confirm)) && figures.failed > 0
    }

    fn progress(&self, elapsed: Duration, measured: Option<Figures>) -> Progress {
        let duration = if measured.is_some() { self.duration } else { self.warmup };
        let (phase, offered_rate) = (self.phase, self.pace.rate());
        Progress { phase, offered_rate, elapsed, duration, measured }
    }
}

/// Calls `act` at `first` and every second after it; returns at `end`, or when the run is
/// stopped.
async fn each_second(stop: &Stop, first: Instant, end: Instant, mut act: impl FnMut(Instant)) {
    let mut tick = first;
    while tick < end && !stop.before(tick).await {
        act(tick);
        tick += TICK;
    }
    stop.before(end).await;
}

/// A runtime on the calling thread.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn work(runtime: &Runtime, worker: Worker, begin: Instant, window: Window) -> io::Result<()> {
    let (index, threads) = worker.share;
    cores::pin_to_core(index, threads);
    runtime.spawn(keep_ticking());
    // A separate task, because each wake-up of the future that a runtime blocks on is a
    // system call.
    let task = runtime.spawn(worker.run(begin, window));
    runtime.block_on(task).unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

/// Keeps a timer in the near future. Setting a timer that is earlier than all others is a
/// system call; without this one, the timeout of each request would be.
async fn keep_ticking() {
    let mut ticks = interval(Duration::from_millis(50));
    loop {
        ticks.tick().await;
    }
}

/// The part of `all` that thread `index` gets.
fn share(all: usize, index: usize, threads: usize) -> usize {
    all / threads + usize::from(index < all % threads)
}
