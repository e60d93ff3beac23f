//! The calls of a canary that are in flight.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use outrigger_canary::Cap;
use outrigger_core::Moment;
use tokio::time::Instant;

/// The calls of a canary in flight, whose number is limited.
#[derive(Debug)]
pub(crate) struct Calls {
    cap: Cap,
    /// The time from which the cap counts.
    epoch: Instant,
    /// The number of requests assigned to the canary that live answered, for want of room.
    left_to_live: AtomicU64,
}

/// A call of the canary in flight. It is over when it [ends](Self::end) or is
/// [abandoned](Self::abandon), at the latest when it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    calls: Arc<Calls>,
    began: Instant,
    is_over: AtomicBool,
}

impl Default for Calls {
    fn default() -> Self {
        Self { cap: Cap::default(), epoch: Instant::now(), left_to_live: AtomicU64::new(0) }
    }
}

impl Calls {
    /// Limits their number.
    pub(crate) fn limit(&self, most: u32) {
        self.cap.limit(most);
    }

    /// The mean time of the latest; `None` before the first has ended.
    pub(crate) fn took(&self) -> Option<Duration> {
        self.cap.took()
    }

    /// True if another one may begin.
    pub(crate) fn has_room(&self) -> bool {
        self.cap.has_room(|| self.moment(Instant::now()))
    }

    /// Begins a call, unless as many are in flight as may be.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<InFlight> {
        let began = Instant::now();
        self.cap.begin(self.moment(began)).then(|| InFlight {
            calls: Arc::clone(self),
            began,
            is_over: AtomicBool::new(false),
        })
    }

    /// Counts a request assigned to the canary that live answers, for want of room.
    pub(crate) fn leave_to_live(&self) {
        self.left_to_live.fetch_add(1, Relaxed);
    }

    /// The number of such requests since the last call.
    pub(crate) fn take_left_to_live(&self) -> u64 {
        self.left_to_live.swap(0, Relaxed)
    }

    fn moment(&self, at: Instant) -> Moment {
        Moment::at(at.saturating_duration_since(self.epoch))
    }
}

impl InFlight {
    /// Ends the call: the canary has answered it, or failed.
    pub(crate) fn end(&self) {
        if !self.is_over.swap(true, Relaxed) {
            self.calls.cap.end(self.began.elapsed());
        }
    }

    /// Abandons the call: nobody waits for it any more. It counts for as long again, because an
    /// engine goes on with such a call.
    pub(crate) fn abandon(&self) {
        if !self.is_over.swap(true, Relaxed) {
            let now = Instant::now();
            let took = now.saturating_duration_since(self.began);
            self.calls.cap.abandon(took, self.calls.moment(now));
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_once() {
        let calls = Arc::new(Calls::default());
        let call = calls.begin().expect("room");
        assert!(!calls.has_room() && calls.begin().is_none());
        call.end();
        assert!(calls.has_room());
        call.end();
        drop(call);
        let next = calls.begin();
        assert!(next.is_some() && calls.begin().is_none());
    }

    #[test]
    fn an_abandoned_or_dropped_call_counts_for_longer() {
        for is_abandoned in [true, false] {
            let calls = Arc::new(Calls::default());
            let mut call = calls.begin().expect("room");
            call.began = call.began.checked_sub(Duration::from_secs(3600)).expect("a time");
            if is_abandoned {
                call.abandon();
                call.end();
            }
            drop(call);
            assert!(!calls.has_room(), "for another hour");
        }
    }
}
