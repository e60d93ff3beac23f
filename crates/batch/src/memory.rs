//! The memory of a job: the bytes of rows, requests and answers from the reading of a batch until it
//! is written.

mod allowance;
mod blocked;

use std::{
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

pub(crate) use self::allowance::{Allowance, Used};
use self::blocked::Blocked;

/// The memory of a job. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    /// The part that is kept for the answers of the first batch.
    reserve: u64,
    state: Mutex<State>,
    freed: Condvar,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    /// The most that was used at a time.
    peak: u64,
    /// The part of `used` that waits to be written.
    settled: u64,
    /// The part of `settled` that nothing else must be written before.
    due: u64,
    /// True if the batches that were read need more: no other is read.
    is_wanted: bool,
    /// The time in which somebody waited for room that the writers have.
    blocked: Blocked,
    /// True if nobody waits any longer.
    is_closed: bool,
}

/// Bytes that are in use until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Memory,
    bytes: u64,
    /// True if the bytes wait to be written, and if nothing else must be written before.
    is_settled: bool,
    is_due: bool,
}

impl Memory {
    /// A memory of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self::with_reserve(limit, 0)
    }

    /// A memory of `limit` bytes, of which `reserve` are kept for the answers of the first batch: it
    /// can always go on, and give its memory back.
    pub(crate) fn with_reserve(limit: u64, reserve: u64) -> Self {
        Self(Arc::new(Inner {
            limit,
            reserve: reserve.min(limit),
            state: Mutex::default(),
            freed: Condvar::new(),
            changed: Notify::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for `bytes`, and takes them. Batches of a chunk must ask in their
    /// order: then those before are on their way, and give their memory back. More bytes than the
    /// limit are given when nothing else is in use. `None` after [`close`](Self::close). Blocks.
    pub(crate) fn take(&self, bytes: u64) -> Option<Charge> {
        let limit = self.0.limit - self.0.reserve;
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            let fits = state.used == 0 || state.used.saturating_add(bytes) <= limit;
            if fits && !state.is_wanted {
                break;
            }
            let others = state.used.saturating_sub(state.settled);
            let is_blocked = others == 0 || others.saturating_add(bytes) <= limit;
            if is_blocked {
                state.blocked.begin(Instant::now());
            }
            state = self.0.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            if is_blocked {
                state.blocked.end(Instant::now());
            }
        }
        state.add(bytes);
        Some(self.charge(bytes))
    }

    /// A charge of nothing yet.
    pub(crate) fn open(&self) -> Charge {
        self.charge(0)
    }

    /// A charge of bytes that are in use.
    fn charge(&self, bytes: u64) -> Charge {
        Charge { memory: self.clone(), bytes, is_settled: false, is_due: false }
    }

    /// Lets nobody [`take`](Self::take) bytes while the batches that were read need more.
    pub(crate) fn want(&self, is_wanted: bool) {
        let before = mem::replace(&mut self.state().is_wanted, is_wanted);
        if before && !is_wanted {
            self.0.freed.notify_all();
        }
    }

    /// Waits until bytes were given back since the last call.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// The bytes that wait to be written, where nothing else must be written before.
    pub(crate) fn due(&self) -> u64 {
        self.state().due
    }

    /// The part that is kept for the answers of the first batch, in bytes.
    pub(crate) fn reserve(&self) -> u64 {
        self.0.reserve
    }

    fn give_back(&self, charge: &Charge, bytes: u64) {
        self.state().remove(charge, bytes);
        self.0.freed.notify_all();
        self.0.changed.notify_one();
    }

    /// Waits for `pause`, or until the memory is closed. Returns true if it is open. Blocks.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let state = self.state();
        let waited = self.0.freed.wait_timeout_while(state, pause, |state| !state.is_closed);
        !waited
            .map_or_else(|poisoned| poisoned.into_inner().0.is_closed, |(state, _)| state.is_closed)
    }

    /// Ends all waiting: the job stops.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.0.freed.notify_all();
    }

    /// The limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.0.limit
    }

    /// The bytes that are in use, and the most that were.
    pub(crate) fn used(&self) -> (u64, u64) {
        let state = self.state();
        (state.used, state.peak)
    }

    /// The time in which somebody waited for bytes that there would have been if all settled ones
    /// had been written.
    pub(crate) fn blocked(&self) -> Duration {
        self.state().blocked.total(Instant::now())
    }
}

impl State {
    fn add(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
        self.peak = self.peak.max(self.used);
    }

    fn remove(&mut self, charge: &Charge, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        if charge.is_settled {
            self.settled = self.settled.saturating_sub(bytes);
        }
        if charge.is_due {
            self.due = self.due.saturating_sub(bytes);
        }
    }
}

impl Charge {
    /// Takes further bytes if there is room for them. The reserve is for the first batch only. Returns
    /// false if there is no room.
    pub(crate) fn grow(&mut self, more: u64, is_first: bool) -> bool {
        let Inner { limit, reserve, .. } = &*self.memory.0;
        let limit = if is_first { *limit } else { limit - reserve };
        let mut state = self.memory.state();
        if state.used.saturating_add(more) > limit {
            return false;
        }
        state.add(more);
        self.bytes += more;
        true
    }

    /// A charge of nothing yet in the same memory.
    pub(crate) fn beside(&self) -> Self {
        self.memory.open()
    }

    /// Gives all bytes back but `rest`.
    pub(crate) fn shrink(&mut self, rest: u64) {
        let less = self.bytes.saturating_sub(rest);
        if less > 0 {
            self.memory.give_back(self, less);
            self.bytes -= less;
        }
    }

    /// A charge of some of the bytes, at most all of them, which are no longer part of this one.
    pub(crate) fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.memory.charge(bytes)
    }

    /// Adds the bytes of another charge, neither of which is settled.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.bytes += mem::take(&mut other.bytes);
    }

    /// The bytes wait to be written from now on. `is_due`: nothing else must be written before.
    pub(crate) fn settle(&mut self, is_due: bool) {
        let mut state = self.memory.state();
        if !self.is_settled {
            state.settled = state.settled.saturating_add(self.bytes);
            state.due = state.due.saturating_add(if is_due { self.bytes } else { 0 });
            (self.is_settled, self.is_due) = (true, is_due);
        }
        drop(state);
        self.memory.0.freed.notify_all();
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.give_back(self, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn bytes_wait_for_room() {
        let memory = Memory::new(10);
        let mut first = memory.take(6).expect("room");
        let (sender, receiver) = mpsc::channel();
        let waiting = memory.clone();
        let thread = thread::spawn(move || sender.send(waiting.take(5).is_some()));
        assert!(receiver.try_recv().is_err());
        first.shrink(5);
        assert!(receiver.recv().expect("an answer"));
        thread.join().expect("ended").expect("sent");
        assert_eq!(memory.used(), (5, 10));
        assert_eq!(memory.due(), 0);
    }

    #[test]
    fn the_time_that_writers_block_is_counted() {
        let memory = Memory::new(10);
        let (hosts, mut writer) = (memory.take(4).expect("room"), memory.take(6).expect("room"));
        let waits = |memory: &Memory, bytes| {
            let waiting = memory.clone();
            let (sender, receiver) = mpsc::channel();
            let thread = thread::spawn(move || {
                sender.send(()).expect("sent");
                drop(waiting.take(bytes).expect("room"));
            });
            receiver.recv().expect("begun");
            thread
        };
        // Hosts have the memory: it is not blocked by writers, however long it takes.
        let thread = waits(&memory, 3);
        drop(hosts);
        thread.join().expect("ended");
        assert_eq!(memory.blocked(), Duration::ZERO);
        writer.settle(true);
        assert_eq!(memory.due(), 6);
        let thread = waits(&memory, 5);
        while memory.blocked() < Duration::from_millis(5) {
            thread::yield_now();
        }
        writer.shrink(2);
        thread.join().expect("ended");
        let blocked = memory.blocked();
        drop(writer);
        assert_eq!((memory.blocked(), memory.used().0), (blocked, 0));
    }

    #[test]
    fn more_than_the_limit_is_given_alone() {
        let memory = Memory::new(10);
        let large = memory.take(30).expect("nothing else is in use");
        assert_eq!(large.bytes(), 30);
        drop(large);
        assert_eq!(memory.used(), (0, 30));
    }

    #[test]
    fn the_first_batch_has_a_reserve() {
        let memory = Memory::with_reserve(10, 4);
        let (mut first, mut other) = (memory.take(3).expect("room"), memory.take(3).expect("room"));
        assert!(!other.grow(1, false), "only the reserve is left");
        assert!(first.grow(4, true) && !first.grow(1, true));
        let part = first.split(5);
        assert_eq!((first.bytes(), part.bytes(), memory.used().0), (2, 5, 10));
        first.join(part);
        first.settle(true);
        assert_eq!((first.bytes(), memory.due()), (7, 7));
        drop(first);
        assert_eq!((memory.due(), memory.used()), (0, (3, 10)));
        assert!(other.grow(1, false));
    }

    #[test]
    fn nothing_is_read_while_batches_need_more() {
        let memory = Memory::new(10);
        memory.want(true);
        let waiting = memory.clone();
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || sender.send(waiting.take(1).is_some()));
        assert!(receiver.recv_timeout(Duration::from_millis(10)).is_err());
        memory.want(false);
        assert!(receiver.recv().expect("an answer"));
        thread.join().expect("ended").expect("sent");
    }

    #[test]
    fn closing_ends_the_waiting() {
        let memory = Memory::new(10);
        let _first = memory.take(10).expect("room");
        assert!(memory.pause(Duration::ZERO));
        let waiting = memory.clone();
        let thread = thread::spawn(move || waiting.take(1).is_none());
        memory.close();
        assert!(thread.join().expect("ended"));
        assert!(!memory.pause(Duration::from_secs(3600)));
    }
}
