//! The events of the page: the state of the job, and its first dead letters.

use std::{
    future::pending,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use outrigger_batch::{Error, Letter, Progress, Reader, Status, Store, Watch};
use outrigger_console::{Feed, Topic};
use serde::Serialize;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

/// The topics: the job, and its dead letters.
pub(crate) const TOPICS: usize = 2;
/// The time between two events.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// The time between two readings of the store.
const READ_EVERY: Duration = Duration::from_secs(2);

/// The page of a job.
pub(crate) struct Page {
    store: Store,
    watch: Option<Watch>,
    can_change: bool,
    feed: Feed<TOPICS>,
    shown: Shown,
}

/// The state that was read last.
#[derive(Default)]
struct Shown {
    status: Option<Status>,
    letters: Vec<Letter>,
    /// The reason why there is no newer state.
    trouble: Option<String>,
    topics: [Topic; TOPICS],
}

/// A reading of the store.
type Reading = (Reader, Result<(Status, Vec<Letter>), Error>);

/// The event `job`.
#[derive(Serialize)]
struct Job<'a> {
    /// Milliseconds since 1970.
    now: u64,
    version: &'static str,
    /// True if settings can be changed with a token.
    can_change: bool,
    trouble: Option<&'a str>,
    status: Option<&'a Status>,
}

impl Page {
    /// The page of the job in `store`. The figures of `watch` are those of the worker in this process.
    pub(crate) fn new(
        store: Store,
        watch: Option<Watch>,
        can_change: bool,
        end: CancellationToken,
    ) -> Self {
        Self { store, watch, can_change, feed: Feed::new(end), shown: Shown::default() }
    }

    /// The stream of events.
    pub(crate) fn feed(&self) -> &Feed<TOPICS> {
        &self.feed
    }

    /// Reads and publishes while there are viewers, until the page ends.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(PUBLISH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reader = Some(Reader::new(self.store.clone()));
        let (mut reading, mut due): (Option<JoinHandle<Reading>>, _) = (None, Instant::now());
        loop {
            // A store that is slow or away delays no event.
            let news = tokio::select! {
                _ = ticks.tick() => None,
                () = self.feed.viewer() => None,
                read = ended(&mut reading) => Some(read),
                () = self.feed.ended() => return,
            };
            if let Some(news) = news {
                reader = Some(self.take(news));
            }
            if !self.feed.has_viewers() {
                continue;
            }
            let now = Instant::now();
            if due <= now
                && let Some(reader) = reader.take()
            {
                reading = Some(spawn_blocking(move || read(reader)));
                due = now + READ_EVERY;
            }
            self.publish();
        }
    }

    /// Takes a reading; returns the reader for the next one.
    fn take(&mut self, read: Option<Reading>) -> Reader {
        let Some((reader, read)) = read else {
            self.shown.trouble = Some("the reading of the job failed".to_owned());
            return Reader::new(self.store.clone());
        };
        match read {
            Ok((status, letters)) => {
                let is_new = letters != self.shown.letters;
                (self.shown.status, self.shown.letters) = (Some(status), letters);
                self.shown.trouble = None;
                if is_new {
                    let topic = &self.shown.topics[1];
                    self.shown.topics[1] = topic.next("letters", &self.shown.letters, NO_STEP);
                }
            }
            // There is no plan yet.
            Err(Error::Usage(_)) if self.watch.is_some() && self.shown.status.is_none() => {
                self.shown.trouble = Some("the job is being prepared".to_owned());
            }
            Err(error) => self.shown.trouble = Some(error.to_string()),
        }
        reader
    }

    /// Publishes the state with the newest figures of the worker in this process.
    fn publish(&mut self) {
        let own = self.watch.as_ref().map(Watch::get).filter(|own| !own.worker.is_empty());
        if let (Some(status), Some(own)) = (&mut self.shown.status, own) {
            replace(&mut status.workers, own);
        }
        let shown = &mut self.shown;
        let job = Job {
            now: milliseconds(SystemTime::now()),
            version: env!("CARGO_PKG_VERSION"),
            can_change: self.can_change,
            trouble: shown.trouble.as_deref(),
            status: shown.status.as_ref(),
        };
        shown.topics[0] = shown.topics[0].next("job", &job, NO_STEP);
        if shown.topics[1].is_new() {
            shown.topics[1] = shown.topics[1].next("letters", &shown.letters, NO_STEP);
        }
        self.feed.publish(shown.topics.clone());
    }
}

/// A topic is always sent as a whole.
const NO_STEP: Option<&()> = None;

/// Reads the state of the job. Blocks.
fn read(mut reader: Reader) -> Reading {
    let status = reader.read();
    let read = status.and_then(|status| Ok((status, reader.letters()?.to_vec())));
    (reader, read)
}

/// The reading that ends; `None` if it panicked. Waits for ever if there is none.
async fn ended(reading: &mut Option<JoinHandle<Reading>>) -> Option<Reading> {
    let Some(handle) = reading else { return pending().await };
    let read = handle.await;
    *reading = None;
    read.ok()
}

fn replace(workers: &mut Vec<Progress>, own: Progress) {
    match workers.iter_mut().find(|worker| worker.worker == own.worker) {
        Some(worker) => *worker = own,
        None => workers.push(own),
    }
}

fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
