//! The memory of a job: the bytes of rows, requests and answers from the reading of a batch until it
//! is written.

mod blocked;

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use self::blocked::Blocked;

/// The memory of a job. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    /// The most that was used at a time.
    peak: u64,
    /// The part of `used` that waits to be written.
    settled: u64,
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
    /// True if the bytes wait to be written.
    is_settled: bool,
}

impl Memory {
    /// A memory of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self(Arc::new(Inner { limit, state: Mutex::default(), freed: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for `bytes`, and takes them. Batches of a chunk must ask in their
    /// order: then those before are on their way, and give their memory back. More bytes than the
    /// limit are given when nothing else is in use. `None` after [`close`](Self::close). Blocks.
    pub(crate) fn take(&self, bytes: u64) -> Option<Charge> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            if state.used == 0 || state.used.saturating_add(bytes) <= self.0.limit {
                break;
            }
            let others = state.used.saturating_sub(state.settled);
            let is_blocked = others == 0 || others.saturating_add(bytes) <= self.0.limit;
            if is_blocked {
                state.blocked.begin(Instant::now());
            }
            state = self.0.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            if is_blocked {
                state.blocked.end(Instant::now());
            }
        }
        state.add(bytes);
        Some(Charge { memory: self.clone(), bytes, is_settled: false })
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

    fn remove(&mut self, charge: &Charge) {
        self.used = self.used.saturating_sub(charge.bytes);
        if charge.is_settled {
            self.settled = self.settled.saturating_sub(charge.bytes);
        }
    }
}

impl Charge {
    /// Sets the bytes to those that are really in use. They are not refused: the answer is there, and
    /// what was not expected keeps later batches out.
    pub(crate) fn set(&mut self, bytes: u64) {
        let mut state = self.memory.state();
        state.remove(self);
        state.add(bytes);
        if self.is_settled {
            state.settled = state.settled.saturating_add(bytes);
        }
        self.bytes = bytes;
        drop(state);
        self.memory.0.freed.notify_all();
    }

    /// The bytes wait to be written from now on.
    pub(crate) fn settle(&mut self) {
        let mut state = self.memory.state();
        if !self.is_settled {
            state.settled = state.settled.saturating_add(self.bytes);
            self.is_settled = true;
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
        self.memory.state().remove(self);
        self.memory.0.freed.notify_all();
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
        first.set(5);
        assert!(receiver.recv().expect("an answer"));
        thread.join().expect("ended").expect("sent");
        assert_eq!(memory.used(), (5, 10));
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
        writer.settle();
        let thread = waits(&memory, 5);
        while memory.blocked() < Duration::from_millis(5) {
            thread::yield_now();
        }
        writer.set(2);
        thread.join().expect("ended");
        let blocked = memory.blocked();
        drop(writer);
        assert_eq!((memory.blocked(), memory.used().0), (blocked, 0));
    }

    #[test]
    fn more_than_the_limit_is_given_alone() {
        let memory = Memory::new(10);
        let mut large = memory.take(30).expect("nothing else is in use");
        assert_eq!(large.bytes(), 30);
        large.set(40);
        drop(large);
        assert_eq!(memory.used(), (0, 40));
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
