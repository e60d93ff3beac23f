//! The state of a connection that its messages and its socket share.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Waker,
};

use futures::task::AtomicWaker;

use super::unread::{Member, Unread};

/// The reports of messages to their connection, which updates the windows of its peer.
///
/// A handler changes what is unread and wanted, and then looks at what the connection has published;
/// the connection publishes, and then looks at the same two. Both use one total order (`SeqCst`), so
/// one of them sees the other, and no change is missed.
#[derive(Debug)]
pub(super) struct Link {
    _member: Member,
    pool: Unread,
    /// The bytes that are set aside for what nobody has taken charge of.
    unread: AtomicUsize,
    /// The same as the pool counts it.
    reported: AtomicUsize,
    /// The bytes that are missing of the messages that handlers wait for.
    wanted: AtomicUsize,
    /// The messages that handlers wait for.
    incomplete: AtomicUsize,
    /// Published: the bytes that the peer may send on the connection.
    allowance: AtomicUsize,
    /// Published: when less than this is unread, an update of the connection's window is due.
    wake_below: AtomicUsize,
    /// True while the socket is not read.
    is_held_up: AtomicBool,
    /// True while the connection is in the queue of the pool.
    is_queued: AtomicBool,
    /// The streams whose windows may be due to be updated.
    short: Mutex<Vec<u32>>,
    has_short: AtomicBool,
    reads: AtomicUsize,
    connection: AtomicWaker,
}

/// The bytes of a connection that its windows depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Demand {
    pub(super) unread: usize,
    pub(super) wanted: usize,
}

impl Link {
    pub(super) fn new(pool: Unread) -> Self {
        Self {
            _member: pool.enter(),
            pool,
            unread: AtomicUsize::new(0),
            reported: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            incomplete: AtomicUsize::new(0),
            allowance: AtomicUsize::new(0),
            wake_below: AtomicUsize::new(0),
            is_held_up: AtomicBool::new(false),
            is_queued: AtomicBool::new(false),
            short: Mutex::default(),
            has_short: AtomicBool::new(false),
            reads: AtomicUsize::new(0),
            connection: AtomicWaker::new(),
        }
    }

    /// Registers the connection's task.
    pub(super) fn register(&self, waker: &Waker) {
        self.connection.register(waker);
    }

    /// Counts a read of the connection.
    pub(super) fn read(&self) {
        self.reads.fetch_add(1, Relaxed);
    }

    /// The number of reads so far. It wraps, so only a change of it is meaningful.
    pub(super) fn reads(&self) -> usize {
        self.reads.load(Relaxed)
    }

    /// The connection's share of the pool, in bytes.
    pub(super) fn share(&self) -> usize {
        self.pool.share()
    }

    pub(super) fn demand(&self) -> Demand {
        Demand { unread: self.unread.load(SeqCst), wanted: self.wanted.load(SeqCst) }
    }

    /// Changes what is unread of a message.
    pub(super) fn count_unread(&self, before: usize, now: usize) {
        if now > before {
            self.unread.fetch_add(now - before, SeqCst);
        } else if now < before {
            let left = self.unread.fetch_sub(before - now, SeqCst) - (before - now);
            if self.reported.load(Relaxed) > 0 {
                self.report();
            }
            if left < self.wake_below.load(SeqCst) {
                self.connection.wake();
            }
        }
    }

    /// Changes what a handler waits for: the bytes that are missing of its message; `None` if it does
    /// not wait.
    pub(super) fn count_wanted(&self, before: Option<usize>, now: Option<usize>) {
        match (before, now) {
            (None, Some(_)) => _ = self.incomplete.fetch_add(1, SeqCst),
            (Some(_), None) => _ = self.incomplete.fetch_sub(1, SeqCst),
            _ => {}
        }
        let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
        if now > before {
            self.wanted.fetch_add(now - before, SeqCst);
        } else if now < before {
            self.wanted.fetch_sub(before - now, SeqCst);
        }
    }

    /// Called when a handler has begun to wait for a message, or has read more of a body. The window
    /// of its stream is short if `is_short`.
    pub(super) fn claimed(&self, stream: u32, is_short: bool) {
        if is_short {
            self.short.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
            self.has_short.store(true, SeqCst);
        }
        let wanted = self.wanted.load(SeqCst);
        if is_short || self.allowance.load(SeqCst) < wanted || self.is_held_up() {
            self.connection.wake();
        }
    }

    /// The streams whose windows may be due to be updated, since the last call.
    pub(super) fn take_short(&self) -> Vec<u32> {
        match self.has_short.swap(false, SeqCst) {
            true => std::mem::take(&mut *self.short.lock().unwrap_or_else(PoisonError::into_inner)),
            false => Vec::new(),
        }
    }

    /// Publishes the state of the connection's window. Returns true if `seen`, on which it is based,
    /// is still so.
    pub(super) fn publish(&self, allowance: usize, wake_below: usize, seen: Demand) -> bool {
        self.allowance.store(allowance, SeqCst);
        self.wake_below.store(wake_below, SeqCst);
        self.demand() == seen && !self.has_short.load(SeqCst)
    }

    /// Reports to the pool what is unread.
    pub(super) fn report(&self) {
        let now = self.unread.load(SeqCst);
        if self.reported.load(Relaxed) != now {
            self.pool.replace(self.reported.swap(now, SeqCst), now);
        }
    }

    /// Holds the connection up if the pool is full, it has more than `most` bytes in it, and no handler
    /// waits for a message. Returns true if the socket must not be read now. It is woken when that
    /// changes.
    pub(super) fn hold_up(self: &Arc<Self>, most: usize) -> bool {
        if !self.must_wait(most) {
            self.is_held_up.store(false, SeqCst);
            return false;
        }
        self.wake_below.fetch_max(most.saturating_add(1), SeqCst);
        self.is_held_up.store(true, SeqCst);
        if !self.is_queued.swap(true, SeqCst) {
            self.pool.wait(self);
        }
        let must = self.must_wait(most);
        self.is_held_up.store(must, SeqCst);
        must
    }

    /// Lets the next connection follow that waits for room. Called after a read.
    pub(super) fn wake_next(&self) {
        self.pool.wake_next();
    }

    fn must_wait(&self, most: usize) -> bool {
        self.unread.load(SeqCst) > most && self.incomplete.load(SeqCst) == 0 && self.pool.is_full()
    }

    pub(super) fn is_held_up(&self) -> bool {
        self.is_held_up.load(SeqCst)
    }

    /// Wakes the connection because the pool has room.
    pub(super) fn resume(&self) {
        self.is_queued.store(false, SeqCst);
        self.connection.wake();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let left = std::mem::take(self.reported.get_mut());
        self.pool.replace(left, 0);
    }
}

#[cfg(test)]
mod tests {
    use futures::task::{ArcWake, waker};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl ArcWake for Count {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.fetch_add(1, SeqCst);
        }
    }

    /// A connection that is held up with 1000 bytes in a full pool.
    fn held_up() -> (Unread, Arc<Link>, Arc<Count>) {
        let unread = Unread::of(1500);
        unread.replace(0, 1000);
        let link = Arc::new(Link::new(unread.clone()));
        link.count_unread(0, 1000);
        link.report();
        let count = Arc::<Count>::default();
        link.register(&waker(Arc::clone(&count)));
        assert!(!link.hold_up(1000), "it has no more than it may have in any case");
        assert!(link.hold_up(999));
        (unread, link, count)
    }

    #[test]
    fn a_connection_that_is_held_up_goes_on_when_a_message_is_claimed() {
        let (_, link, count) = held_up();
        link.count_wanted(None, Some(0));
        link.claimed(1, false);
        assert_eq!((count.0.load(SeqCst), link.hold_up(999)), (1, false));
    }

    #[test]
    fn a_connection_that_is_held_up_goes_on_when_it_has_less() {
        let (_, link, count) = held_up();
        link.count_unread(1000, 900);
        assert_eq!((count.0.load(SeqCst), link.hold_up(999)), (1, false));
    }

    #[test]
    fn a_connection_that_is_held_up_goes_on_when_the_pool_has_room() {
        let (unread, link, count) = held_up();
        unread.replace(1000, 0);
        assert_eq!((count.0.load(SeqCst), link.hold_up(999)), (1, false));
        unread.replace(0, 1000);
        assert!(link.hold_up(999), "it waits again");
        unread.replace(1000, 0);
        link.register(&waker(Arc::clone(&count)));
        assert!(!link.hold_up(999));
    }
}
