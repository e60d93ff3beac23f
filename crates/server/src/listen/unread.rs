//! The bytes of bodies that nobody has taken charge of, of all connections together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use outrigger_budget::Pool;

use super::CONNECTION_WINDOW;

/// The smallest share of a connection: the window with which every HTTP/2 connection begins.
pub(super) const LEAST_SHARE: usize = 65_535;

/// The unread bytes of all connections. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Unread(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pool: Pool,
    connections: AtomicUsize,
    /// The most bytes that were ever in the pool.
    #[cfg(test)]
    peak: std::sync::atomic::AtomicU64,
}

/// A connection that has a share of the pool until this is dropped.
#[derive(Debug)]
pub(super) struct Member(Unread);

impl Unread {
    pub(crate) fn new(pool: Pool) -> Self {
        Self(Arc::new(Shared {
            pool,
            connections: AtomicUsize::new(0),
            #[cfg(test)]
            peak: std::sync::atomic::AtomicU64::new(0),
        }))
    }

    /// Counts a connection among those that share the pool.
    pub(super) fn enter(&self) -> Member {
        self.0.connections.fetch_add(1, SeqCst);
        Member(self.clone())
    }

    /// The bytes of the pool for each connection.
    pub(super) fn share(&self) -> usize {
        let connections = self.0.connections.load(SeqCst).max(1) as u64;
        let share = usize::try_from(self.0.pool.limit() / connections).unwrap_or(usize::MAX);
        share.clamp(LEAST_SHARE, CONNECTION_WINDOW as usize)
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.pool.is_full()
    }

    /// Replaces what a connection has in the pool.
    pub(super) fn replace(&self, before: usize, now: usize) {
        if now >= before {
            self.0.pool.add((now - before) as u64);
            #[cfg(test)]
            self.0.peak.fetch_max(self.0.pool.used(), SeqCst);
            return;
        }
        self.0.pool.release((before - now) as u64);
    }

    #[cfg(test)]
    pub(super) fn of(bytes: u64) -> Self {
        Self::new(Pool::new("unread", bytes))
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.0.pool.used()
    }

    #[cfg(test)]
    pub(super) fn peak(&self) -> u64 {
        self.0.peak.load(SeqCst)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.0.connections.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_the_pool() {
        let unread = Unread::of(1 << 20);
        assert_eq!(unread.share(), 1 << 20, "of one that is about to enter");
        let members: Vec<_> = (0..4).map(|_| unread.enter()).collect();
        assert_eq!(unread.share(), 256 << 10);
        drop(members);
        let _many: Vec<_> = (0..1000).map(|_| unread.enter()).collect();
        assert_eq!(unread.share(), LEAST_SHARE);
        assert_eq!(Unread::of(1 << 40).share(), CONNECTION_WINDOW as usize);
    }
}
