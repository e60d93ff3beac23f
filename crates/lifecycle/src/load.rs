//! The load of one version: decides which requests are refused before work is done for them in
//! vain, and which because their caller has more than its share.
//!
//! The requests in progress are the queue in front of the engine. While they take no longer than
//! usual, all are admitted. Once they take more than twice as long, the queue has grown beyond the
//! requests that the engine works on. Then a request is refused that would wait beyond its deadline
//! (the number in progress over the rate of answers, by Little's law), and so is one of a caller
//! with more than its share of the requests in progress. Without this, requests that cannot be
//! answered in time take the engine's time from those that can.
//!
//! All state is in atomics that serving threads share without a lock. Races between threads may
//! lose single counts, which the estimates do not notice.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

/// The places for counts of callers. Two callers may share one by chance.
const CALLERS: usize = 64;
/// The shortest time over which answers are measured, in microseconds.
const WINDOW: u64 = 100_000;
/// The longest time over which answers are measured if fewer than [`ENDED`] requests ended.
const LONGEST_WINDOW: u64 = 1_000_000;
/// The number of requests that end in a window before the window may end.
const ENDED: u32 = 16;
/// The time for which a version counts as crowded after it was found to be, in microseconds.
const CROWDED: u64 = 5_000_000;
/// The time after which the usual duration may rise by a tenth, and a caller that sent nothing
/// ceases to count, in microseconds.
const GENERATION: u64 = 10_000_000;
/// The least number of requests in progress that are shared out between callers.
const LEAST_SHARED: u32 = 8;
/// The least share of a caller.
const LEAST_SHARE: u32 = 2;

/// The load of one version.
#[derive(Debug)]
pub struct Load {
    in_flight: AtomicU32,
    /// The requests in progress of each caller.
    callers: [AtomicU16; CALLERS],
    /// The requests of each caller that were admitted lately: halved with each window.
    lately: [AtomicU32; CALLERS],
    /// Callers of this generation and of the one before, one bit for each place.
    seen: [AtomicU64; 2],
    window: Window,
    /// The mean duration of requests when they do not wait, in microseconds; 0: not known yet.
    usual: AtomicU64,
    /// The least mean duration in this generation.
    least: AtomicU64,
    generation: AtomicU64,
    /// Answers in a second while there were always requests in progress.
    rate: AtomicU32,
    /// The number of requests in progress that are shared out between callers while crowded.
    shared: AtomicU32,
    crowded_until: AtomicU64,
}

/// Measurements since the beginning of the window.
#[derive(Debug)]
struct Window {
    began: AtomicU64,
    /// Requests that ended, with an answer or without.
    ended: AtomicU32,
    answers: AtomicU32,
    /// The sum of their durations in microseconds.
    took: AtomicU64,
    /// The least number of requests in progress.
    in_flight: AtomicU32,
    /// Requests that were refused.
    refused: AtomicU32,
}

/// A request in progress. Dropping it ends the request without an answer.
#[derive(Debug)]
pub struct Running {
    load: Arc<Load>,
    caller: usize,
    began: u64,
}

/// The reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowded {
    /// It would be answered after its deadline; this is the time that it would take.
    Late(Duration),
    /// Its caller has more than its share of the requests in progress.
    Share,
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Microseconds since some time in the past; 1 or more.
fn micros(at: Instant) -> u64 {
    let elapsed = at.saturating_duration_since(*EPOCH).as_micros();
    u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_add(1)
}

impl Default for Load {
    fn default() -> Self {
        Self {
            in_flight: AtomicU32::new(0),
            callers: std::array::from_fn(|_| AtomicU16::new(0)),
            lately: std::array::from_fn(|_| AtomicU32::new(0)),
            seen: Default::default(),
            window: Window {
                began: AtomicU64::new(0),
                ended: AtomicU32::new(0),
                answers: AtomicU32::new(0),
                took: AtomicU64::new(0),
                in_flight: AtomicU32::new(0),
                refused: AtomicU32::new(0),
            },
            usual: AtomicU64::new(0),
            least: AtomicU64::new(u64::MAX),
            generation: AtomicU64::new(0),
            rate: AtomicU32::new(0),
            shared: AtomicU32::new(0),
            crowded_until: AtomicU64::new(0),
        }
    }
}

impl Load {
    /// Begins a request of the caller with this hash.
    ///
    /// # Errors
    /// The version is crowded, and the request is late or its caller has more than its share.
    pub fn enter(
        self: &Arc<Self>,
        caller: u64,
        now: Instant,
        deadline: Instant,
    ) -> Result<Running, Crowded> {
        let (caller, began) = ((caller % CALLERS as u64) as usize, micros(now));
        self.see(caller);
        if began < self.crowded_until.load(Relaxed) {
            let admitted = self.check(caller, deadline.saturating_duration_since(now));
            admitted.inspect_err(|_| {
                self.window.refused.fetch_add(1, Relaxed);
            })?;
        }
        self.in_flight.fetch_add(1, Relaxed);
        self.callers[caller].fetch_add(1, Relaxed);
        self.lately[caller].fetch_add(1, Relaxed);
        Ok(Running { load: Arc::clone(self), caller, began })
    }

    fn check(&self, caller: usize, allowed: Duration) -> Result<(), Crowded> {
        let in_flight = self.in_flight.load(Relaxed);
        let rate = self.rate.load(Relaxed).max(1);
        let wait = Duration::from_secs(1).mul_f64(f64::from(in_flight + 1) / f64::from(rate));
        // A quarter more, because some requests take longer than the mean.
        if in_flight > 1 && wait + wait / 4 > allowed {
            return Err(Crowded::Late(wait));
        }
        let active = self.active();
        let shared = self.shared.load(Relaxed);
        let share = (shared / active).max(LEAST_SHARE);
        let held = u32::from(self.callers[caller].load(Relaxed));
        if active < 2 || in_flight < shared || held < share {
            return Ok(());
        }
        // A caller that has more than its share for a moment only does not give way to one that
        // always has.
        let all: u32 = self.lately.iter().map(|caller| caller.load(Relaxed)).sum();
        let is_fair = self.lately[caller].load(Relaxed) < all / active;
        if is_fair { Ok(()) } else { Err(Crowded::Share) }
    }

    /// Counts a caller as active.
    fn see(&self, caller: usize) {
        let (seen, bit) = (&self.seen[0], 1 << caller);
        if seen.load(Relaxed) & bit == 0 {
            seen.fetch_or(bit, Relaxed);
        }
    }

    /// The number of callers that sent requests lately.
    fn active(&self) -> u32 {
        let [now, before] = &self.seen;
        (now.load(Relaxed) | before.load(Relaxed)).count_ones().max(1)
    }

    fn leave(&self, running: &Running, now: u64, is_answered: bool) {
        self.callers[running.caller].fetch_sub(1, Relaxed);
        let left = self.in_flight.fetch_sub(1, Relaxed) - 1;
        let window = &self.window;
        window.in_flight.fetch_min(left, Relaxed);
        if is_answered {
            window.answers.fetch_add(1, Relaxed);
            window.took.fetch_add(now.saturating_sub(running.began), Relaxed);
        }
        let ended = window.ended.fetch_add(1, Relaxed) + 1;
        let began = window.began.load(Relaxed);
        let lasted = now.saturating_sub(began);
        let is_over = lasted >= WINDOW && ended >= ENDED || lasted >= LONGEST_WINDOW;
        if is_over && window.began.compare_exchange(began, now, Relaxed, Relaxed).is_ok() {
            self.measure(now, lasted);
        }
    }

    /// Takes the measurements of the window that has ended.
    fn measure(&self, now: u64, lasted: u64) {
        for caller in &self.lately {
            caller.store(caller.load(Relaxed) / 2, Relaxed);
        }
        let window = &self.window;
        window.ended.store(0, Relaxed);
        let (answers, took) = (window.answers.swap(0, Relaxed), window.took.swap(0, Relaxed));
        let refused = window.refused.swap(0, Relaxed);
        let always = window.in_flight.swap(self.in_flight.load(Relaxed), Relaxed);
        let mean = took.checked_div(answers.into());
        let usual = mean.map_or_else(|| self.usual.load(Relaxed), |mean| self.usual(now, mean));
        let measured = u64::from(answers) * 1_000_000 / lasted.max(1);
        // A version without requests at times answers at least as many as it was asked for, so the
        // estimate may rise then, but not fall.
        if always > 0 || measured > self.rate.load(Relaxed).into() {
            self.estimate(measured, usual);
        }
        let is_slow = always > 0 && mean.is_some_and(|mean| mean > usual * 2);
        // While requests are refused, the others take no longer than usual because of that.
        if refused > 0 || is_slow && self.in_flight.load(Relaxed) >= LEAST_SHARED {
            self.crowded_until.store(now + CROWDED, Relaxed);
        }
    }

    /// Sets the estimates after a window with this rate of answers. The rate falls by half at most:
    /// one slow window does not make it useless. It does fall while nothing is answered in time,
    /// because then the engine works for requests whose callers have gone.
    fn estimate(&self, measured: u64, usual: u64) {
        let measured = u32::try_from(measured).unwrap_or(u32::MAX);
        let rate = measured.max(self.rate.load(Relaxed) / 2).max(1);
        self.rate.store(rate, Relaxed);
        let working = u64::from(rate) * usual / 1_000_000;
        let shared = u32::try_from(working * 2).unwrap_or(u32::MAX).max(LEAST_SHARED);
        self.shared.store(shared, Relaxed);
    }

    /// The usual duration, after a window with this mean. A window without waits sets it; it rises
    /// by a tenth at most in each generation, because a queue that persists is not usual.
    fn usual(&self, now: u64, mean: u64) -> u64 {
        let least = self.least.fetch_min(mean, Relaxed).min(mean);
        let mut usual = self.usual.load(Relaxed);
        let generation = self.generation.load(Relaxed);
        if now.saturating_sub(generation) >= GENERATION {
            self.generation.store(now, Relaxed);
            self.least.store(u64::MAX, Relaxed);
            self.seen[1].store(self.seen[0].swap(0, Relaxed), Relaxed);
            usual = least.min(usual + usual / 10);
        }
        usual = if usual == 0 { mean } else { usual.min(mean) };
        self.usual.store(usual, Relaxed);
        usual
    }
}

impl Running {
    /// Ends the request, which was answered.
    pub fn answered(self) {
        self.end(micros(Instant::now()), true);
    }

    fn end(mut self, now: u64, is_answered: bool) {
        self.load.leave(&self, now, is_answered);
        // Dropping it must not count it again.
        self.caller = CALLERS;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.caller < CALLERS {
            self.load.leave(self, micros(Instant::now()), false);
        }
    }
}

#[cfg(test)]
mod tests;
