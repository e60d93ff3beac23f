//! The queue of requests for a crowded version.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc, MutexGuard, PoisonError,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use outrigger_core::{Ticket, Turns};
use tokio::{sync::oneshot, time::Instant};

use super::{Ask, Entry, Estimates, Late, Load, Running, micros, micros_of};

/// One part in so many is added to estimated times, because some requests take longer than the
/// mean.
const MARGIN: u32 = 4;
/// The number of counts of callers.
const COUNTS: usize = 256;
/// The counts are halved when so many were admitted.
const LATELY: u32 = 1024;

/// A request that waits for its turn. Dropping it gives up the wait.
#[derive(Debug)]
pub struct Waiting {
    load: Arc<Load>,
    caller: u64,
    ticket: Ticket,
    admitted: oneshot::Receiver<Result<Running, Late>>,
    /// The time after which it could not be answered before its deadline.
    latest: Instant,
}

/// A waiting request in the queue.
#[derive(Debug)]
pub(super) struct Waiter {
    deadline: u64,
    admit: oneshot::Sender<Result<Running, Late>>,
}

/// The waiting requests, by a hash of their callers. Callers that had less than their share of what
/// was admitted lately come before the others.
#[derive(Debug)]
pub(super) struct Queue {
    turns: Turns<u64, Waiter>,
    /// The number of requests that were admitted lately, by caller. Callers may share a count by
    /// chance.
    admitted: [u32; COUNTS],
    all: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { turns: Turns::default(), admitted: [0; COUNTS], all: 0 }
    }
}

impl Deref for Queue {
    type Target = Turns<u64, Waiter>;

    fn deref(&self) -> &Self::Target {
        &self.turns
    }
}

impl DerefMut for Queue {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.turns
    }
}

impl Queue {
    /// Lets a caller that had less than its share come before the others.
    fn advance_if_below(&mut self, caller: u64) {
        let active = self.admitted.iter().filter(|count| **count > 0).count();
        let share = self.all as usize / active.max(1);
        if (self.admitted[slot(caller)] as usize) < share {
            self.turns.advance(&caller);
        }
    }

    /// Counts a request that is admitted.
    pub(super) fn count(&mut self, caller: u64) {
        if self.all >= LATELY {
            self.admitted.iter_mut().for_each(|count| *count /= 2);
            self.all = self.admitted.iter().sum();
        }
        self.admitted[slot(caller)] += 1;
        self.all += 1;
    }

    /// Takes the waiter whose turn it is.
    fn take_next(&mut self) -> Option<Waiter> {
        let (caller, waiter) = self.turns.pop()?;
        self.count(caller);
        self.advance_if_below(caller);
        Some(waiter)
    }
}

fn slot(caller: u64) -> usize {
    (caller % COUNTS as u64) as usize
}

impl Load {
    /// Admits a request if nobody waits and there is room, or puts it in the queue.
    pub(super) fn line_up(self: &Arc<Self>, ask: &Ask, now: u64) -> Result<Entry, Late> {
        let mut queue = self.queue();
        let allowed = ask.deadline.saturating_duration_since(ask.now);
        let ahead = if ask.is_first { 0 } else { queue.ahead(&ask.caller) };
        if let Some(wait) = self.is_late(ahead, allowed) {
            return Err(Late::Crowd(Some(wait)));
        }
        if queue.is_empty() && self.has_room(now) && self.model.take() {
            queue.count(ask.caller);
            return Ok(Entry::Running(self.admitted(now)));
        }
        let (admit, admitted) = oneshot::channel();
        let waiter = Waiter { deadline: micros(ask.deadline), admit };
        let ticket = match ask.is_first {
            true => queue.push_first(ask.caller, waiter),
            false => queue.push(ask.caller, waiter),
        };
        queue.advance_if_below(ask.caller);
        self.waiting.fetch_add(1, SeqCst);
        self.model.waits();
        drop(queue);
        // A request may have ended just before this one was counted as waiting.
        self.admit_waiting(now);
        let latest = ask.deadline.checked_sub(self.with_margin(self.duration()));
        let latest = latest.unwrap_or(ask.now).max(ask.now);
        let load = Arc::clone(self);
        Ok(Entry::Waiting(Waiting { load, caller: ask.caller, ticket, admitted, latest }))
    }

    /// True if another request may be in progress. Those whose bodies are on their way come on top of
    /// the limit, by their expected number, because the engine does not work on them. In a trial no
    /// more than the limit are with the engine.
    fn has_room(&self, now: u64) -> bool {
        let Estimates { limit, arriving, is_trying, .. } = &self.estimates;
        if self.model.is_full() || !self.is_limited_at(now) {
            return !self.model.is_full();
        }
        let limit = limit.load(Relaxed);
        self.in_flight.load(SeqCst) < limit.saturating_add(arriving.load(Relaxed))
            && (!is_trying.load(Relaxed) || self.working.load(SeqCst) < limit)
    }

    /// The time until the answer of a request with so many waiters ahead of it, if it is longer than
    /// is `allowed`. While the limit still grows, the rate says nothing about the future.
    fn is_late(&self, ahead: usize, allowed: Duration) -> Option<Duration> {
        if !self.estimates.is_saturated.load(Relaxed) {
            return None;
        }
        let in_flight = self.in_flight.load(Relaxed);
        #[allow(clippy::cast_precision_loss)]
        let before = ahead as f64 + f64::from(in_flight) + 1.0;
        let rate = f64::from(self.estimates.rate.load(Relaxed).max(1));
        let wait = Duration::from_secs_f64(before / rate);
        (in_flight > 1 && self.with_margin(wait) > allowed).then_some(wait)
    }

    /// An estimated time with a margin, and the time by which callers give up early.
    fn with_margin(&self, time: Duration) -> Duration {
        time + time / MARGIN + Duration::from_micros(self.estimates.early.load(Relaxed))
    }

    /// The time that a request takes that is admitted now.
    fn duration(&self) -> Duration {
        let Estimates { usual, rate, is_saturated, .. } = &self.estimates;
        let usual = Duration::from_micros(usual.load(Relaxed));
        if !is_saturated.load(Relaxed) {
            return usual;
        }
        let in_flight = f64::from(self.in_flight.load(Relaxed) + 1);
        usual.max(Duration::from_secs_f64(in_flight / f64::from(rate.load(Relaxed).max(1))))
    }

    /// Admits waiting requests while there is room.
    pub(super) fn admit_waiting(self: &Arc<Self>, now: u64) {
        // One whose caller has gone away ends outside of the lock.
        while let Some(gone) = self.admit_next(now) {
            drop(gone);
        }
    }

    /// Admits waiting requests while there is room, until one has gone away meanwhile.
    fn admit_next(self: &Arc<Self>, now: u64) -> Option<Running> {
        let mut queue = self.queue();
        while self.has_room(now) && self.model.take() {
            let Some(waiter) = queue.take_next() else {
                self.model.give_back();
                break;
            };
            self.waits_no_more();
            let end = now.saturating_add(micros_of(self.with_margin(self.duration())));
            let admitted = match end > waiter.deadline {
                true => Err(self.reason()),
                false => Ok(self.admitted(now)),
            };
            if admitted.is_err() {
                self.model.give_back();
            }
            if let Err(Ok(gone)) = waiter.admit.send(admitted) {
                return Some(gone);
            }
        }
        None
    }

    fn waits_no_more(&self) {
        self.waiting.fetch_sub(1, SeqCst);
        self.model.has_waited();
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// The time after which it could not be answered before its deadline.
    pub fn latest(&self) -> Instant {
        self.latest
    }

    /// Waits until it is admitted.
    ///
    /// # Errors
    /// It would be late by now, or the engine has been away for too long.
    pub async fn admitted(&mut self) -> Result<Running, Late> {
        tokio::select! {
            biased;
            // The queue drops nobody without a result.
            admitted = &mut self.admitted => admitted.unwrap_or_else(|_| Err(self.load.reason())),
            failure = self.load.flight.given_up() => Err(Late::Engine(failure)),
        }
    }

    /// The refusal of a request that waits after [`Self::latest`].
    pub fn late(&self) -> Late {
        self.load.reason()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let removed = self.load.queue().remove(&self.caller, self.ticket);
        if removed.is_some() {
            self.load.waits_no_more();
        }
    }
}
