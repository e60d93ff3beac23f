//! A measurement: threads that send, a window in which it counts, and what is
//! read off at its ends.

use std::{
    collections::BTreeMap,
    io,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
};

use crate::{
    Error, Job,
    client::Client,
    cpu::Times,
    prepare::Prepared,
    progress::{Observer, Progress},
    tally::{Tally, Window},
    worker::{Pace, Worker},
};

/// From the last connection to the first request.
const LEAD: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_secs(1);

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measurement {
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
    pub(crate) cpu_seconds_per_request: BTreeMap<String, f64>,
}

impl Measured {
    /// Answers a second.
    pub(crate) fn throughput(&self) -> f64 {
        self.tally.answered as f64 / self.duration.as_secs_f64()
    }
}

/// When to begin, and what counts.
#[derive(Debug, Clone, Copy)]
struct Start {
    begin: Instant,
    window: Window,
}

/// A thread that waits for its start.
struct Waiting<'scope> {
    start: oneshot::Sender<Start>,
    thread: thread::ScopedJoinHandle<'scope, Result<(), Error>>,
}

/// Sends the prepared requests as `plan` says.
///
/// # Errors
/// The server has gone, or a process whose CPU time is wanted is not there.
pub(crate) fn measure(
    job: &Job,
    prepared: &Prepared,
    plan: &Measurement,
    observer: &mut Observer<'_>,
) -> Result<Measured, Error> {
    let tallies: Vec<_> = (0..job.threads).map(|_| Mutex::new(Tally::default())).collect();
    let cpu = thread::scope(|scope| {
        let (ready, connected) = mpsc::channel();
        let waiting: Vec<_> = tallies
            .iter()
            .enumerate()
            .map(|(index, tally)| {
                let (start, started) = oneshot::channel();
                let ready = ready.clone();
                let thread =
                    scope.spawn(move || work(job, prepared, plan, index, tally, &ready, started));
                Waiting { start, thread }
            })
            .collect();
        drop(ready);
        // A thread that fails ends without a word here.
        let all = connected.iter().take(job.threads).count() == job.threads;
        let start = Start::soon(plan);
        let mut threads = Vec::new();
        for Waiting { start: tell, thread } in waiting {
            if all {
                // One that has ended since says why below.
                let _ = tell.send(start);
            }
            threads.push(thread);
        }
        let cpu = if all { Some(watch(job, plan, start.window, &tallies, observer)) } else { None };
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        cpu.expect("a thread that did not get ready has failed")
    })?;
    let mut tally = Tally::default();
    for other in tallies {
        tally.merge(other.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    let cpu_seconds_per_request = cpu.1.per_request(&cpu.0, tally.ended);
    Ok(Measured { tally, duration: plan.duration, cpu_seconds_per_request })
}

impl Start {
    fn soon(plan: &Measurement) -> Self {
        let begin = Instant::now() + LEAD;
        let start = begin + plan.warmup;
        Self { begin, window: Window { start, end: start + plan.duration } }
    }
}

/// One thread: connects, says so, waits for the start, and works.
fn work(
    job: &Job,
    prepared: &Prepared,
    plan: &Measurement,
    index: usize,
    tally: &Mutex<Tally>,
    ready: &mpsc::Sender<()>,
    started: oneshot::Receiver<Start>,
) -> Result<(), Error> {
    runtime()?.block_on(async {
        let connections = share(job.connections, index, job.threads);
        let client = Client::open(&job.server, prepared.protocol, connections).await;
        let client = client.map_err(|failure| job.unreachable(failure))?;
        let worker = Worker {
            client,
            messages: &prepared.messages,
            pace: plan.pace,
            in_flight: share(job.in_flight(plan.pace), index, job.threads),
            timeout: job.timeout,
            share: (index, job.threads),
            tally,
        };
        // Nobody listens any more, or speaks, if another thread has failed.
        let _ = ready.send(());
        match started.await {
            Ok(Start { begin, window }) => Ok(worker.run(begin, window).await?),
            Err(_) => Ok(()),
        }
    })
}

/// A runtime on the calling thread.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// A thread's part of `all`, at least 1.
fn share(all: usize, index: usize, threads: usize) -> usize {
    (all / threads + usize::from(index < all % threads)).max(1)
}

/// Reads CPU times at both ends of the window and tells of progress in between.
fn watch(
    job: &Job,
    plan: &Measurement,
    window: Window,
    tallies: &[Mutex<Tally>],
    observer: &mut Observer<'_>,
) -> Result<(Times, Times), Error> {
    sleep_until(window.start);
    let before = Times::read(&job.processes)?;
    let mut progress = Progress::new(plan.pace.rate(), plan.duration);
    let mut tick = window.start + TICK;
    while tick < window.end {
        sleep_until(tick);
        progress.update(tick - window.start, tallies);
        observer(&progress);
        tick += TICK;
    }
    sleep_until(window.end);
    Ok((before, Times::read(&job.processes)?))
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}
