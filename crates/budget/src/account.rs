//! An account of memory, and the charges on it.

mod queue;

use std::{
    fmt,
    hash::{BuildHasher as _, Hash, RandomState},
    sync::{
        Arc, LazyLock,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use bytesize::ByteSize;
use outrigger_core::{Digest, Failure, Reason};
use tokio::sync::{Mutex, Notify};

use self::queue::Queue;
use crate::metrics;

/// The number of counters that owners are spread over. Owners that share one, one pair in 4096, are
/// treated as one owner.
const SLOTS: usize = 4096;

/// An account of memory. Clones share it.
///
/// An owner may hold at most as many bytes as are free after its charge, or a multiple of them. Thus
/// one owner alone gets half of the account, two that compete get a third each, and room is left for
/// an owner that holds nothing yet. This is the dynamic threshold of Choudhury and Hahne (IEEE/ACM Transactions on
/// Networking, 1998) for buffers that several queues share.
#[derive(Clone)]
pub struct Account(Arc<Inner>);

struct Inner {
    name: &'static str,
    limit: u64,
    /// An owner may hold this many times the bytes that are free.
    shares: u64,
    refusals: Refusals,
    used: AtomicU64,
    owners: Box<[AtomicU64]>,
    /// Held by the caller of [`Account::wait`] whose turn it is.
    turn: Mutex<()>,
    waiting: AtomicUsize,
    queue: Queue,
    freed: Notify,
}

/// The reasons with which an account refuses memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusals {
    /// The memory would fit if others held less.
    pub(crate) busy: Reason,
    /// The memory would not fit even in an empty account.
    pub(crate) too_large: Reason,
}

/// The reason why memory cannot be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The account has no room.
    Account,
    /// The account has room, but its owner would hold more than its share.
    Share,
}

/// The party that causes memory to be held: a caller, a registry, a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(usize);

impl Owner {
    /// The owner with this key.
    pub fn of(key: &impl Hash) -> Self {
        /// Keyed at random, so that no caller can choose with whom it shares a counter.
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        #[allow(clippy::cast_possible_truncation)]
        Self(HASHER.hash_one(key) as usize % SLOTS)
    }
}

impl Account {
    pub(crate) fn new(name: &'static str, limit: u64, refusals: Refusals) -> Self {
        Self::with_shares(name, limit, refusals, 1)
    }

    /// An account of which an owner may hold `shares` times the bytes that are free.
    pub(crate) fn with_shares(
        name: &'static str,
        limit: u64,
        refusals: Refusals,
        shares: u64,
    ) -> Self {
        Self(Arc::new(Inner {
            name,
            limit,
            shares,
            refusals,
            used: AtomicU64::new(0),
            owners: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            turn: Mutex::default(),
            waiting: AtomicUsize::new(0),
            queue: Queue::default(),
            freed: Notify::new(),
        }))
    }

    /// Its name in metrics.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Its size in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// The bytes that one owner may hold if others hold none.
    fn most_of_one(&self) -> u64 {
        let shares = self.0.shares;
        self.limit() / (shares + 1) * shares
    }

    /// The bytes that are charged.
    pub fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// The bytes that an owner holds, and those who share its counter by chance.
    pub fn held_by(&self, Owner(slot): Owner) -> u64 {
        self.0.owners[slot].load(Relaxed)
    }

    /// The reasons with which it refuses.
    pub(crate) fn reasons(&self) -> [Reason; 2] {
        [self.0.refusals.busy, self.0.refusals.too_large]
    }

    /// A charge of nothing yet.
    pub fn open(&self, owner: Owner) -> Charge {
        Charge { account: self.clone(), owner: Some(owner), bytes: AtomicU64::new(0) }
    }

    /// Charges `bytes` to `owner`.
    ///
    /// # Errors
    /// They do not fit.
    pub fn charge(&self, owner: Owner, bytes: u64) -> Result<Charge, Failure> {
        let charge = self.open(owner);
        charge.grow(bytes).map(|()| charge)
    }

    /// Charges `bytes` to `owner` if they fit. This is no refusal: the caller may wait.
    ///
    /// # Errors
    /// They do not fit.
    pub fn reserve(&self, owner: Owner, bytes: u64) -> Result<Charge, Lack> {
        let charge = self.open(owner);
        if self.0.take(Some(owner), bytes) {
            charge.bytes.store(bytes, Relaxed);
            return Ok(charge);
        }
        let is_full = self.used().saturating_add(bytes) > self.limit();
        Err(if is_full { Lack::Account } else { Lack::Share })
    }

    /// Charges `bytes` for the version with the digest `version` as soon as there is room. Callers
    /// get it in the order in which they ask, so that small charges do not keep a large one waiting
    /// for ever.
    ///
    /// # Errors
    /// They are more than the account has.
    pub async fn wait(&self, version: Digest, bytes: u64) -> Result<Charge, Failure> {
        if bytes > self.limit() {
            return Err(self.refused(bytes, true));
        }
        let charge = Charge { account: self.clone(), owner: None, bytes: AtomicU64::new(0) };
        let _queued = self.0.queue.enter(version);
        let _turn = self.0.turn.lock().await;
        let _waiting = Waiting::begin(&self.0.waiting);
        while !self.0.take(None, bytes) {
            self.0.freed.notified().await;
        }
        charge.bytes.store(bytes, Relaxed);
        Ok(charge)
    }

    /// True while a version with this digest [waits](Self::wait).
    pub fn is_awaited_by(&self, version: &Digest) -> bool {
        self.0.queue.contains(version)
    }

    fn refused(&self, bytes: u64, is_too_large: bool) -> Failure {
        let Inner { name, limit, refusals, .. } = &*self.0;
        let reason = if is_too_large { refusals.too_large } else { refusals.busy };
        metrics::refused(name, reason);
        let (bytes, limit) = (ByteSize(bytes), ByteSize(*limit));
        let failure = Failure::new(
            reason,
            match is_too_large {
                true => format!(
                    "{bytes} of memory are more than one may take of the {limit} for {name}, which are a share of server.memory"
                ),
                false => format!(
                    "{bytes} more do not fit: {} of the {limit} for {name}, a share of server.memory, are in use",
                    ByteSize(self.used())
                ),
            },
        );
        failure.without_room_in(name)
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, limit) = (self.used(), self.limit());
        f.debug_struct(self.0.name).field("used", &used).field("limit", &limit).finish()
    }
}

impl Inner {
    /// Takes `bytes` for `owner` if they fit.
    fn take(&self, owner: Option<Owner>, bytes: u64) -> bool {
        // Without this check, refused charges would push others over the limit for a moment.
        if self.used.load(SeqCst).saturating_add(bytes) > self.limit {
            return false;
        }
        let used = self.used.fetch_add(bytes, SeqCst) + bytes;
        let free = self.limit.checked_sub(used);
        let is_fair = |Owner(slot)| {
            let held = self.owners[slot].fetch_add(bytes, Relaxed) + bytes;
            free.is_some_and(|free| held <= free.saturating_mul(self.shares))
        };
        let fits = owner.map_or(free.is_some(), is_fair);
        if !fits {
            self.give_back(owner, bytes);
        }
        fits
    }

    fn give_back(&self, owner: Option<Owner>, bytes: u64) {
        if let Some(Owner(slot)) = owner {
            self.owners[slot].fetch_sub(bytes, Relaxed);
        }
        self.used.fetch_sub(bytes, SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            self.freed.notify_one();
        }
    }
}

/// Counts a caller that waits, so that releases notify only if there is one.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Bytes that are charged to an account, and released when dropped.
#[derive(Debug)]
pub struct Charge {
    account: Account,
    owner: Option<Owner>,
    bytes: AtomicU64,
}

impl Charge {
    /// A charge of nothing yet, to the same owner on the same account.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { account: self.account.clone(), owner: self.owner, bytes: AtomicU64::new(0) }
    }

    /// The bytes that are charged.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Charges further bytes.
    ///
    /// # Errors
    /// They do not fit; the charge stays as it was.
    pub fn grow(&self, more: u64) -> Result<(), Failure> {
        if self.account.0.take(self.owner, more) {
            self.bytes.fetch_add(more, Relaxed);
            return Ok(());
        }
        let alone = self.bytes().saturating_add(more);
        let most = match self.owner {
            Some(_) => self.account.most_of_one(),
            None => self.account.limit(),
        };
        Err(self.account.refused(more, alone > most))
    }

    /// Passes at most `most` bytes to `other`, a charge of the same owner on the same account.
    /// Returns the number of bytes passed.
    pub fn pass(&self, other: &Self, most: u64) -> u64 {
        debug_assert!(self.owner == other.owner && Arc::ptr_eq(&self.account.0, &other.account.0));
        let less = |held: u64| Some(held - most.min(held));
        let before = self.bytes.fetch_update(Relaxed, Relaxed, less);
        let passed = most.min(before.unwrap_or_default());
        other.bytes.fetch_add(passed, Relaxed);
        passed
    }

    /// Releases some of the bytes; at most all of them.
    pub fn shrink(&self, less: u64) {
        let before = self.bytes.fetch_update(Relaxed, Relaxed, |held| Some(held - less.min(held)));
        let held = before.unwrap_or_else(|held| held);
        self.account.0.give_back(self.owner, less.min(held));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        match *self.bytes.get_mut() {
            0 => {}
            bytes => self.account.0.give_back(self.owner, bytes),
        }
    }
}

#[cfg(test)]
mod tests;
