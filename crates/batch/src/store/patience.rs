//! The time that a job waits for a store that is away.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use outrigger_resilience::Backoff;

use super::objects::Failure;

/// The time after which a store that has never answered is given up.
const FIRST_ANSWER: Duration = Duration::from_secs(30);

/// Decides how long calls of a store are repeated while it is away: without an end if it has
/// answered before, and else for 30 s. Clones share it.
#[derive(Clone)]
pub struct Patience(Arc<Inner>);

struct Inner {
    time: Time,
    state: Mutex<State>,
    changed: Condvar,
}

enum Time {
    Real(Instant),
    /// Only [`Patience::advance`] moves it.
    Virtual,
}

#[derive(Default)]
struct State {
    is_over: bool,
    has_answered: bool,
    /// The virtual time.
    now: Duration,
    /// The calls that are repeated.
    waiting: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self::in_time(Time::Real(Instant::now()))
    }
}

impl Patience {
    /// For tests: waits in a time that moves by [`advance`](Self::advance) alone.
    pub fn in_virtual_time() -> Self {
        Self::in_time(Time::Virtual)
    }

    fn in_time(time: Time) -> Self {
        Self(Arc::new(Inner { time, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Moves the virtual time.
    pub fn advance(&self, by: Duration) {
        self.state().now += by;
        self.0.changed.notify_all();
    }

    /// Ends all waiting, now and later: the job stops.
    pub fn end(&self) {
        self.state().is_over = true;
        self.0.changed.notify_all();
    }

    /// The number of calls that wait for the store.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// For tests: returns when at least so many calls wait for the store. Blocks.
    pub fn until_waiting(&self, calls: usize) {
        let state = self.state();
        let waited = self.0.changed.wait_while(state, |state| state.waiting < calls);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The result of a request, which is repeated while the store is away. Blocks.
    ///
    /// # Errors
    /// That of the request; [`Failure::Away`] when the store is given up.
    pub(crate) fn call<T>(
        &self,
        mut request: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (start, pauses) = (self.now(), Backoff::default());
        let (mut waiting, mut made) = (None, 0_u32);
        loop {
            let result = request();
            if !matches!(result, Err(Failure::Away(_))) {
                self.state().has_answered = true;
                return result;
            }
            waiting.get_or_insert_with(|| Waiting::of(self));
            made = made.saturating_add(1);
            if !self.wait(pauses.pause(made, rand::random()), start) {
                return result;
            }
        }
    }

    /// Waits before a request is repeated that was sent first at `start`. Returns false if it is
    /// given up.
    fn wait(&self, pause: Duration, start: Duration) -> bool {
        let until = self.now() + pause;
        let mut state = self.state();
        loop {
            let now = self.time(&state);
            let is_given_up = !state.has_answered && now >= start + FIRST_ANSWER;
            if state.is_over || is_given_up || now >= until {
                return !state.is_over && !is_given_up;
            }
            state = match self.0.time {
                Time::Virtual => self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Time::Real(_) => {
                    let waited = self.0.changed.wait_timeout(state, until - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn now(&self) -> Duration {
        self.time(&self.state())
    }

    fn time(&self, state: &State) -> Duration {
        match self.0.time {
            Time::Real(start) => start.elapsed(),
            Time::Virtual => state.now,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a call that is repeated, until it is dropped.
struct Waiting(Patience);

impl Waiting {
    fn of(patience: &Patience) -> Self {
        patience.state().waiting += 1;
        patience.0.changed.notify_all();
        Self(patience.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering::SeqCst},
        thread,
    };

    use super::*;

    fn away<T>() -> Result<T, Failure> {
        Err(Failure::Away("no connection".to_owned()))
    }

    /// Moves the time by `step` until `thread` has ended, at most `most` times. Returns the steps.
    fn advance<T>(
        patience: &Patience,
        thread: &thread::JoinHandle<T>,
        (step, most): (Duration, u32),
    ) -> u32 {
        for taken in 0..most {
            if thread.is_finished() {
                return taken;
            }
            patience.advance(step);
            thread::yield_now();
        }
        most
    }

    #[test]
    fn a_store_that_has_never_answered_is_given_up() {
        let patience = Patience::in_virtual_time();
        let waiting = patience.clone();
        let thread = thread::spawn(move || waiting.call(away::<()>));
        patience.until_waiting(1);
        patience.advance(FIRST_ANSWER - Duration::from_millis(1));
        assert!(!thread.is_finished());
        patience.advance(Duration::from_millis(1));
        assert_eq!(thread.join().expect("ended"), away());
        assert_eq!(patience.waiting(), 0);
    }

    #[test]
    fn a_store_that_has_answered_is_waited_for() {
        let patience = Patience::in_virtual_time();
        assert_eq!(patience.call(|| Err::<(), _>(Failure::Absent)), Err(Failure::Absent));
        let (calls, waiting) = (Arc::new(AtomicU32::new(0)), patience.clone());
        let counted = Arc::clone(&calls);
        let thread = thread::spawn(move || {
            waiting.call(|| match counted.fetch_add(1, SeqCst) {
                0..300 => away(),
                call => Ok(call),
            })
        });
        // At pauses of 5 s to 10 s, these are 25 to 50 minutes.
        let steps = advance(&patience, &thread, (Duration::from_secs(1), u32::MAX));
        assert_eq!(thread.join().expect("ended"), Ok(300));
        assert!(steps > 300 * 5 - 60, "{steps}");
    }

    #[test]
    fn the_end_of_a_job_ends_all_waiting() {
        let patience = Patience::default();
        patience.call(|| Ok(())).expect("answered");
        let waiting = patience.clone();
        let thread = thread::spawn(move || waiting.call(away::<()>));
        patience.until_waiting(1);
        patience.end();
        assert_eq!(thread.join().expect("ended"), away());
        let mut calls = 0;
        let result = patience.call(|| {
            calls += 1;
            away::<()>()
        });
        assert_eq!((result, calls), (away(), 1));
    }
}
