//! The cap on a canary's calls in flight, so that it takes no more of the engine than its
//! share.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use outrigger_core::Moment;

/// One part in so many of a call's time goes into the mean time of calls.
const WEIGHT: u64 = 8;

/// A call that is abandoned sooner has hardly reached the engine.
const SHORT: Duration = Duration::from_millis(1);

/// No call was abandoned.
const NEVER: u64 = u64::MAX;

/// Counts a canary's calls in flight, and limits their number. Threads share it without a
/// lock, unless calls were abandoned.
///
/// The caller decides about each request at its arrival: while there is no room, the
/// request is live's and is left out of the comparison, whichever arm it is assigned to.
/// This depends on earlier requests only, so the comparison of the others stays fair.
#[derive(Debug)]
pub struct Cap {
    most: AtomicU32,
    in_flight: AtomicU32,
    /// The mean time of the calls, in microseconds; 0 before the first has ended.
    took: AtomicU64,
    /// The ends of abandoned calls, which are still counted as in flight, in microseconds.
    abandoned: Mutex<Vec<u64>>,
    /// The earliest of these ends.
    earliest: AtomicU64,
}

/// A cap of one call.
impl Default for Cap {
    fn default() -> Self {
        Self {
            most: AtomicU32::new(1),
            in_flight: AtomicU32::new(0),
            took: AtomicU64::new(0),
            abandoned: Mutex::default(),
            earliest: AtomicU64::new(NEVER),
        }
    }
}

impl Cap {
    /// Limits the number of calls in flight. If more are in flight, they end undisturbed. 0
    /// is a pause.
    pub fn limit(&self, most: u32) {
        self.most.store(most, Relaxed);
    }

    /// True if another call may begin. The time is asked for only if it matters.
    pub fn has_room(&self, now: impl FnOnce() -> Moment) -> bool {
        let is_below = || self.in_flight.load(SeqCst) < self.most.load(Relaxed);
        is_below() || self.end_abandoned(now()) && is_below()
    }

    /// Begins a call, which must be ended or abandoned. Returns false if as many are in
    /// flight as may be.
    #[must_use]
    pub fn begin(&self, now: Moment) -> bool {
        let most = self.most.load(Relaxed);
        let one_more = |count| (count < most).then_some(count + 1);
        self.has_room(|| now) && self.in_flight.fetch_update(SeqCst, SeqCst, one_more).is_ok()
    }

    /// Ends a call that the canary has answered or failed after this time.
    pub fn end(&self, took: Duration) {
        self.learn(took);
        self.in_flight.fetch_sub(1, SeqCst);
    }

    /// Abandons a call: nobody waits for it any more, and the engine may go on with it. It
    /// counts as in flight for as long again as it `took`. If that was hardly any time, the
    /// call has ended, and its time says nothing about others.
    pub fn abandon(&self, took: Duration, now: Moment) {
        if took < SHORT {
            self.in_flight.fetch_sub(1, SeqCst);
            return;
        }
        self.learn(took);
        let until = micros(now.elapsed().saturating_add(took));
        let mut abandoned = self.abandoned();
        abandoned.push(until);
        self.earliest.fetch_min(until, Relaxed);
    }

    /// The mean time of the latest calls; `None` before the first has ended.
    pub fn took(&self) -> Option<Duration> {
        let took = self.took.load(Relaxed);
        (took > 0).then(|| Duration::from_micros(took))
    }

    /// Ends the abandoned calls whose time is over. Returns true if there were some.
    fn end_abandoned(&self, now: Moment) -> bool {
        let now = micros(now.elapsed());
        if self.earliest.load(Relaxed) > now {
            return false;
        }
        let mut abandoned = self.abandoned();
        let before = abandoned.len();
        abandoned.retain(|end| *end > now);
        self.earliest.store(abandoned.iter().copied().min().unwrap_or(NEVER), Relaxed);
        // They are counted among the calls in flight, in 32 bits.
        let ended = (before - abandoned.len()) as u32;
        self.in_flight.fetch_sub(ended, SeqCst);
        ended > 0
    }

    fn abandoned(&self) -> MutexGuard<'_, Vec<u64>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the time of a call into the mean. If two threads do so at once, one time may
    /// be lost.
    fn learn(&self, took: Duration) {
        let took = micros(took);
        let mean = match self.took.load(Relaxed) {
            0 => took,
            mean => mean - mean / WEIGHT + took / WEIGHT,
        };
        self.took.store(mean.max(1), Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: f64) -> Moment {
        Moment::at(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn no_more_calls_are_in_flight_than_the_limit() {
        let (cap, now) = (Cap::default(), at(1.0));
        assert!(cap.begin(now), "one may be in flight before anything is known");
        assert!(!cap.has_room(|| now) && !cap.begin(now));
        cap.end(SECOND);
        assert!(cap.has_room(|| now));
        cap.limit(2);
        assert_eq!([cap.begin(now), cap.begin(now), cap.begin(now)], [true, true, false]);
        cap.limit(1);
        cap.end(SECOND);
        assert!(!cap.has_room(|| now), "the other one is still in flight");
        cap.end(SECOND);
        assert!(cap.has_room(|| now));
        cap.limit(0);
        assert!(!cap.has_room(|| now) && !cap.begin(now), "a pause");
    }

    #[test]
    fn an_abandoned_call_counts_for_as_long_again_as_it_took() {
        let cap = Cap::default();
        assert!(cap.begin(at(1.0)));
        cap.abandon(SECOND, at(2.0));
        assert!(!cap.has_room(|| at(2.9)));
        assert!(cap.has_room(|| at(3.0)) && cap.begin(at(3.0)));
        assert!(!cap.has_room(|| at(4.0)));
        cap.end(SECOND);
        assert!(cap.begin(at(4.0)));
        cap.abandon(SHORT / 2, at(4.0));
        assert!(cap.has_room(|| at(4.0)), "the engine has hardly seen it");
    }

    #[test]
    fn the_mean_time_follows_the_calls() {
        let cap = Cap::default();
        assert_eq!(cap.took(), None);
        let call = |took| {
            assert!(cap.begin(at(1.0)));
            cap.end(took);
            cap.took().expect("known")
        };
        assert_eq!([call(SECOND), call(SECOND)], [SECOND; 2]);
        assert!(cap.begin(at(1.0)));
        cap.abandon(SHORT / 2, at(1.0));
        assert_eq!(cap.took(), Some(SECOND), "it was hardly made");
        let later = [(); 40].map(|()| call(Duration::ZERO));
        assert!(later[39] < SECOND / 50, "{:?}", later[39]);
    }

    #[test]
    fn threads_together_keep_the_limit() {
        const LIMIT: u32 = 3;
        let cap = Cap::default();
        cap.limit(LIMIT);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for call in 0..10_000 {
                        let now = at(f64::from(call));
                        if cap.begin(now) {
                            assert!(cap.in_flight.load(SeqCst) <= LIMIT);
                            cap.end(SECOND);
                        }
                    }
                });
            }
        });
        assert_eq!(cap.in_flight.load(SeqCst), 0);
    }
}
