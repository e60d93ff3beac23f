//! The load of one version: the gate at which requests for a crowded version wait for their turn.
//!
//! The requests in progress are the queue in front of the engine. While they take no longer than
//! usual, all are admitted. Once they take more than twice as long, the queue has grown beyond the
//! requests that the engine works on, and the version is crowded. Then a limited number is in
//! progress, and the others wait, in order of arrival and with their callers in turn; callers that
//! had less than their share lately come first. A request is refused at once if it would be
//! answered after its deadline (those ahead of it over the rate of answers, by Little's law).
//! Without this, requests that cannot be answered in time take the engine's time from those that
//! can. The requests in progress of all versions of a model may have a limit too: beyond it requests
//! wait in the same way, whether or not the engine has too much to do.
//!
//! While a version is not crowded, all state is in atomics that serving threads share without a
//! lock. Races between threads may lose single counts, which the estimates do not notice.

mod control;
mod gate;
mod model;

use std::{
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use outrigger_core::Failure;
use outrigger_score::Flight;
use tokio::time::Instant;

pub use self::gate::Waiting;
pub(crate) use self::model::ModelLoad;
use self::{
    control::{Control, FIRST, Measured},
    gate::Queue,
};

/// The number of requests that end in a window before the window may end.
const ENDED: u32 = 16;
/// The longest time, in microseconds, that counts as the usual arrival of a body.
const LONGEST_ARRIVAL: u64 = 100_000;

/// The load of one version.
#[derive(Debug, Default)]
pub struct Load {
    /// The number of requests in progress.
    in_flight: AtomicU32,
    /// The number of those whose bodies are there, which the engine works on or has ready.
    working: AtomicU32,
    waiting: AtomicU32,
    window: Window,
    /// The mean time from the admission of a request until its body is there, in microseconds.
    arrival: AtomicU64,
    estimates: Estimates,
    control: Mutex<Control>,
    queue: Mutex<Queue>,
    /// The load of its model.
    model: Arc<ModelLoad>,
    /// Its calls in the engine.
    flight: Arc<Flight>,
}

/// The current values of [`Control`].
#[derive(Debug)]
struct Estimates {
    limit: AtomicU32,
    /// The number of requests in progress beyond the limit, because their bodies are on their way.
    arriving: AtomicU32,
    /// The time by which callers give up earlier than their deadlines say.
    early: AtomicU64,
    /// The time since which that estimate has not risen.
    early_since: AtomicU64,
    rate: AtomicU32,
    usual: AtomicU64,
    is_saturated: AtomicBool,
    crowded_until: AtomicU64,
    is_trying: AtomicBool,
    shortest_window: AtomicU64,
    longest_window: AtomicU64,
}

/// Measurements since the beginning of the window.
#[derive(Debug, Default)]
struct Window {
    began: AtomicU64,
    /// Requests that ended, with an answer or without.
    ended: AtomicU32,
    answers: AtomicU32,
    /// Requests that had been admitted, and were not answered before their callers gave up.
    missed: AtomicU32,
    /// The sum of the durations of answers, in microseconds.
    took: AtomicU64,
    /// The least number of requests in progress.
    in_flight: AtomicU32,
    /// True if requests waited or were refused.
    has_waited: AtomicBool,
    /// The longest run beside the load, in microseconds.
    beside: AtomicU64,
}

/// A request that asks to be admitted.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// A hash of its caller.
    pub caller: u64,
    /// The present time.
    pub now: Instant,
    /// The time at which its caller gives up.
    pub deadline: Instant,
    /// True if it waits before the others of its caller: it had been admitted before.
    pub is_first: bool,
}

/// A request that was not refused.
#[derive(Debug)]
pub enum Entry {
    /// It is in progress.
    Running(Running),
    /// It waits for its turn.
    Waiting(Waiting),
}

/// A request in progress. Dropping it ends the request without an answer.
#[derive(Debug)]
pub struct Running {
    load: Arc<Load>,
    admitted: u64,
    /// The time at which its body was there; 0 before.
    began: AtomicU64,
    /// True if the usual duration is measured by it.
    is_chosen: AtomicBool,
    has_ended: bool,
}

/// The time at which a request was admitted.
#[derive(Debug, Clone, Copy)]
pub struct Admitted(u64);

/// The reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Late {
    /// The version is crowded. Holds the time until the answer, if that was beyond the deadline from
    /// the beginning; otherwise it waited until its deadline.
    Crowd(Option<Duration>),
    /// It waited until its deadline, and its model has as many requests in progress as it may have.
    Model,
    /// The engine does not answer.
    Engine(Failure),
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Microseconds since some time in the past; 1 or more.
fn micros(at: Instant) -> u64 {
    micros_of(at.saturating_duration_since(*EPOCH)).saturating_add(1)
}

fn micros_of(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Default for Estimates {
    fn default() -> Self {
        let (shortest, longest) = Control::default().window();
        Self {
            limit: FIRST.into(),
            arriving: AtomicU32::new(0),
            early: AtomicU64::new(0),
            early_since: AtomicU64::new(0),
            rate: AtomicU32::new(0),
            usual: AtomicU64::new(0),
            is_saturated: AtomicBool::new(false),
            crowded_until: AtomicU64::new(0),
            is_trying: AtomicBool::new(false),
            shortest_window: shortest.into(),
            longest_window: longest.into(),
        }
    }
}

impl Load {
    /// The load of a version of `model`, whose calls in its engine are those of `flight`.
    pub(crate) fn of(model: &Arc<ModelLoad>, flight: Arc<Flight>) -> Arc<Self> {
        let load = Arc::new(Self { model: Arc::clone(model), flight, ..Self::default() });
        model.add(&load);
        load
    }

    /// Sets the number of requests of its model that may be in progress; 0 means no limit.
    pub fn allow(&self, most: u32) {
        self.model.allow(most);
    }

    /// True if requests may have to wait: the version is crowded, its usual duration is not known, or
    /// its model is at its limit.
    pub fn is_crowded(&self, now: Instant) -> bool {
        self.is_crowded_at(micros(now))
    }

    /// The mean duration of requests when they do not wait; `None` while it is not known.
    pub fn usual(&self) -> Option<Duration> {
        let usual = self.estimates.usual.load(Relaxed);
        (usual > 0).then(|| Duration::from_micros(usual))
    }

    /// True if requests have to wait.
    pub fn is_contended(&self, now: Instant) -> bool {
        self.is_contended_at(micros(now))
    }

    fn is_contended_at(&self, now: u64) -> bool {
        now < self.estimates.crowded_until.load(Relaxed)
            || self.waiting.load(Relaxed) > 0
            || self.model.is_full()
    }

    /// True if no more requests may be in progress than the engine can work on: the version is crowded,
    /// nothing was measured since it was, or its usual duration is not known.
    fn is_limited_at(&self, now: u64) -> bool {
        let Estimates { crowded_until, usual, .. } = &self.estimates;
        let measured = now.min(self.window.began.load(Relaxed));
        measured < crowded_until.load(Relaxed) || usual.load(Relaxed) == 0
    }

    fn is_crowded_at(&self, now: u64) -> bool {
        self.is_contended_at(now) || self.estimates.usual.load(Relaxed) == 0
    }

    /// Begins a request, or lets it wait for its turn.
    ///
    /// # Errors
    /// The version is crowded, and the request would be late.
    pub fn enter(self: &Arc<Self>, ask: &Ask) -> Result<Entry, Late> {
        let now = micros(ask.now);
        self.begin_window(now);
        if !self.is_crowded_at(now) && self.model.take() {
            return Ok(Entry::Running(self.admitted(now)));
        }
        let entry = self.line_up(ask, now);
        if !matches!(entry, Ok(Entry::Running(_))) {
            self.window.has_waited.store(true, Relaxed);
        }
        entry
    }

    /// Begins a request at once, even if the version is crowded: that of a canary, whose calls in
    /// flight are limited elsewhere, or the part of a batch for another arm than the one whose turn
    /// it waited for. If it waited for both, two batches could wait for each other.
    pub fn enter_at_once(self: &Arc<Self>, now: Instant) -> Running {
        let now = micros(now);
        self.begin_window(now);
        self.model.take_beyond();
        let running = self.admitted(now);
        running.begins_at_once();
        running
    }

    /// Begins the first window.
    fn begin_window(&self, now: u64) {
        if self.window.began.load(Relaxed) == 0 {
            self.window.began.store(now, Relaxed);
        }
    }

    /// Records that the caller of a request which was admitted at this time gave up before its
    /// answer.
    pub fn missed(&self, admitted: Admitted) {
        // Those from before the estimate rose do not show that it is still too low.
        if admitted.0 >= self.estimates.early_since.load(Relaxed) {
            self.window.missed.fetch_add(1, Relaxed);
        }
    }

    /// Records a run that is no part of the load, such as one of low priority. Requests that had to
    /// wait for it took longer, and not because there are too many of them.
    pub fn ran_beside(&self, took: Duration) {
        self.window.beside.fetch_max(micros_of(took), Relaxed);
    }

    /// A request in progress, which has been counted in the load of the model.
    fn admitted(self: &Arc<Self>, now: u64) -> Running {
        self.in_flight.fetch_add(1, SeqCst);
        Running {
            load: Arc::clone(self),
            admitted: now,
            began: AtomicU64::new(0),
            is_chosen: AtomicBool::new(false),
            has_ended: false,
        }
    }

    fn leave(self: &Arc<Self>, running: &Running, now: u64, is_answered: bool) {
        let left = self.in_flight.fetch_sub(1, SeqCst) - 1;
        self.model.give_back();
        let began = running.began.load(Relaxed);
        if began > 0 {
            self.working.fetch_sub(1, SeqCst);
        }
        let took = (is_answered && began > 0).then(|| now.saturating_sub(began));
        match self.estimates.is_trying.load(Relaxed) {
            true => self.count_in_trial(now, running, took),
            false => self.count(now, left, took),
        }
        self.model.admit_others(self, now);
        if self.waiting.load(SeqCst) > 0 {
            self.admit_waiting(now);
        }
    }

    /// The reason why a request still waits at its deadline.
    fn reason(&self) -> Late {
        match self.flight.outage() {
            Some(failure) => Late::Engine(failure),
            None if self.model.is_full() => Late::Model,
            None => Late::Crowd(None),
        }
    }

    fn count(&self, now: u64, left: u32, took: Option<u64>) {
        let window = &self.window;
        window.in_flight.fetch_min(left, Relaxed);
        if let Some(took) = took {
            window.answers.fetch_add(1, Relaxed);
            window.took.fetch_add(took, Relaxed);
        }
        let ended = window.ended.fetch_add(1, Relaxed) + 1;
        let began = window.began.load(Relaxed);
        let lasted = now.saturating_sub(began);
        let Estimates { shortest_window, longest_window, .. } = &self.estimates;
        let is_over = lasted >= shortest_window.load(Relaxed) && ended >= ENDED
            || lasted >= longest_window.load(Relaxed);
        if is_over && window.began.compare_exchange(began, now, Relaxed, Relaxed).is_ok() {
            let measured = self.end_window(now, lasted);
            let mut control = self.control();
            control.measure(&measured);
            self.publish(&control);
        }
    }

    fn count_in_trial(&self, now: u64, running: &Running, took: Option<u64>) {
        let left = self.working.load(SeqCst);
        let mut control = self.control();
        let chosen = running.is_chosen.load(Relaxed).then_some(took);
        if control.ended(now, left, chosen) {
            self.window.began.store(now, Relaxed);
            self.end_window(now, 0);
            self.publish(&control);
        }
    }

    /// The measurements of the window that has ended; the next one begins.
    fn end_window(&self, now: u64, lasted: u64) -> Measured {
        let window = &self.window;
        window.ended.store(0, Relaxed);
        let in_flight = self.in_flight.load(Relaxed);
        let is_waiting = self.waiting.load(Relaxed) > 0;
        Measured {
            now,
            lasted,
            answers: window.answers.swap(0, Relaxed),
            missed: window.missed.swap(0, Relaxed),
            took: window.took.swap(0, Relaxed),
            always: window.in_flight.swap(in_flight, Relaxed),
            in_flight,
            has_waited: window.has_waited.swap(false, Relaxed) || is_waiting,
            beside: window.beside.swap(0, Relaxed),
        }
    }

    /// Sets the estimates. The number of bodies on their way follows from Little's law.
    fn publish(&self, control: &Control) {
        let arriving = u64::from(control.rate) * self.arrival.load(Relaxed);
        let arriving = u32::try_from(arriving.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        let (shortest, longest) = control.window();
        let estimates = &self.estimates;
        estimates.limit.store(control.limit(), Relaxed);
        estimates.arriving.store(arriving, Relaxed);
        estimates.early.store(control.early, Relaxed);
        estimates.early_since.store(control.early_since, Relaxed);
        estimates.rate.store(control.rate, Relaxed);
        estimates.usual.store(control.usual, Relaxed);
        estimates.is_saturated.store(control.is_saturated, Relaxed);
        estimates.crowded_until.store(control.crowded_until, Relaxed);
        estimates.is_trying.store(control.is_trying(), Relaxed);
        estimates.shortest_window.store(shortest, Relaxed);
        estimates.longest_window.store(longest, Relaxed);
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Its load.
    pub fn load(&self) -> &Arc<Load> {
        &self.load
    }

    /// The time at which it was admitted.
    pub fn admitted(&self) -> Admitted {
        Admitted(self.admitted)
    }

    /// Begins the measurement of its duration. Its body is there; it was not when it was admitted.
    pub fn begins(&self, now: Instant) {
        let now = micros(now);
        self.arrived(now.saturating_sub(self.admitted).min(LONGEST_ARRIVAL));
        self.begins_at(now);
    }

    /// Begins the measurement of its duration. Its body was there when it was admitted.
    pub fn begins_at_once(&self) {
        self.arrived(0);
        self.begins_at(self.admitted);
    }

    /// Records the time from the admission until the body was there.
    fn arrived(&self, took: u64) {
        let mean = self.load.arrival.load(Relaxed);
        self.load.arrival.store(mean - mean / 8 + took / 8, Relaxed);
    }

    fn begins_at(&self, now: u64) {
        if self.began.swap(now, Relaxed) == 0 {
            self.load.working.fetch_add(1, SeqCst);
        }
        if self.load.estimates.is_trying.load(Relaxed) {
            self.is_chosen.store(self.load.control().choose(), Relaxed);
        }
    }

    /// Ends the request, which was answered.
    pub fn answered(self) {
        self.end(micros(Instant::now()), true);
    }

    fn end(mut self, now: u64, is_answered: bool) {
        self.has_ended = true;
        self.load.leave(&self, now, is_answered);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            self.load.leave(self, micros(Instant::now()), false);
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
