//! A measurement: threads that send, a window in which it counts, and what is
//! read off at its ends.

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

/// Until the threads have started.
const LEAD: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_secs(1);

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measurement {
    /// What it is for, in a search for a rate.
    pub(crate) phase: Option<Phase>,
    pub(crate) pace: Pace,
    /// Sent, but not counted.
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
}

/// What was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    pub(crate) duration: Duration,
    pub(crate) cpu_seconds_per_request: BTreeMap<String, Option<f64>>,
    /// Processes that have ended meanwhile.
    pub(crate) ended_processes: Vec<String>,
    /// Whether it was stopped before its time.
    pub(crate) interrupted: bool,
}

impl Measured {
    /// Answers a second.
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
    /// The server has gone.
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

    /// A worker with its connections, and the runtime they live in.
    fn worker(
        &self,
        job: &Job,
        prepared: &Prepared,
        index: usize,
        over: &Stop,
    ) -> Result<(Runtime, Worker), Error> {
        let runtime = runtime()?;
        let connections = share(job.connections, index, job.threads);
        let client = Client::open(&job.server, prepared.protocol, connections);
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

    /// Reads CPU times at both ends of the window, and tells of progress before it and
    /// in between.
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

    /// Whether a rate is tried, and known not to be held: one failure is enough.
    fn is_lost(&self, figures: Figures) -> bool {
        matches!(self.phase, Some(Phase::Search | Phase::Confirm)) && figures.failed > 0
    }

    fn progress(&self, elapsed: Duration, measured: Option<Figures>) -> Progress {
        let duration = if measured.is_some() { self.duration } else { self.warmup };
        let (phase, offered_rate) = (self.phase, self.pace.rate());
        Progress { phase, offered_rate, elapsed, duration, measured }
    }
}

/// Calls `act` at `first` and every second from then on; returns at `end`, or when the
/// run is stopped.
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
    cores::keep_to_one(index, threads);
    runtime.spawn(keep_ticking());
    // In a task of its own: each wake of the future that a runtime blocks on is a
    // system call.
    let task = runtime.spawn(worker.run(begin, window));
    runtime.block_on(task).unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

/// Keeps a timer near. To set one that is earlier than all others is a system
/// call, which the time limit of each request would be if it were the only one.
async fn keep_ticking() {
    let mut ticks = interval(Duration::from_millis(50));
    loop {
        ticks.tick().await;
    }
}

/// A thread's part of `all`.
fn share(all: usize, index: usize, threads: usize) -> usize {
    all / threads + usize::from(index < all % threads)
}
