//! Admission: limits the predictions in progress, and lets others wait for a place in turn.

mod places;
mod queue;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use outrigger_budget::{Account, Charge, Lack, Owner};
use outrigger_core::{Failure, Reason};

pub(crate) use self::queue::Waiting;
use self::{
    places::Places,
    queue::{Queue, Waiter},
};
use crate::{
    caller::{Party, Peer},
    habit::Needs,
    limits::{self, Share},
    metrics::{self, Limit},
};

/// The number of predictions that are in progress although the memory which they are expected to need is not
/// free. An estimate that is too high must not stop all of them, because it is corrected by those that are in
/// progress.
const FEW: u32 = 4;
/// Before anything is known about a request it counts as this part of the account of requests.
const UNKNOWN: u64 = 16;
/// The end of the message of a prediction that waited in vain.
pub(crate) const WAITED: &str = "this one waited until its deadline";

/// The places of predictions in progress. Clones share them.
///
/// A prediction gets a place if one is free, its caller is below its own limit, and the account of
/// requests has room for the memory that such requests need. Otherwise it waits, and callers take
/// turns. A prediction that waits for anything else, such as a model that comes up, gives its place
/// back and the memory that it has not taken, so that callers of one slow model do not lock out all
/// others. The number of those that wait for a model has a limit of its own.
#[derive(Debug, Clone)]
pub(crate) struct Admission(Arc<Gate>);

#[derive(Debug)]
struct Gate {
    working: Places,
    aside: Places,
    per_caller: limits::Limit<Party>,
    requests: Account,
    /// The memory that the latest requests of all connections needed.
    needs: Needs,
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

/// A prediction's place, with the memory that is reserved for it.
#[derive(Debug)]
pub(crate) struct Seat {
    // It is released before the place, so that the next one finds room.
    pub(crate) reserved: Charge,
    pub(crate) place: Place,
}

/// A prediction's place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Arc<Gate>,
    party: Party,
    share: Option<Share<Party>>,
    /// `None` while it waits aside.
    working: Mutex<Option<Working>>,
    /// Held while the place is taken again.
    returning: tokio::sync::Mutex<()>,
}

/// One of the places of predictions in progress.
#[derive(Debug)]
struct Working(Arc<Gate>);

/// The place of a prediction that has waited aside, with the memory that is reserved for it.
#[derive(Debug)]
struct Back {
    // It is released before the place, so that the next one finds room.
    reserved: Charge,
    working: Working,
}

/// The result of a wait aside.
pub(crate) struct Aside<T> {
    pub(crate) result: T,
    /// The memory that is reserved for the rest; `None` if the place had been taken again by another
    /// part of the call.
    pub(crate) reserved: Option<Charge>,
}

/// The reason why a prediction does not get a place.
#[derive(Debug, Clone, Copy)]
enum Full {
    /// Its caller has as many places as it may have.
    Caller,
    /// There is no room for its memory.
    Memory(Lack),
}

impl Admission {
    /// Places for `working` predictions in progress and `aside` that wait for a model.
    pub(crate) fn new(
        (working, aside): (u32, u32),
        per_caller: limits::Limit<Party>,
        requests: Account,
    ) -> Self {
        let needs = Needs::of(requests.limit() / UNKNOWN);
        Self(Arc::new(Gate {
            working: Places::new(working),
            aside: Places::new(aside),
            per_caller,
            requests,
            needs,
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        }))
    }

    /// Changes the number of places, and lets waiting predictions in for which the limits have room
    /// now. Predictions that hold a place which is withdrawn keep it to their end.
    pub(crate) fn resize(&self, working: u32, aside: u32) {
        self.0.working.resize(working);
        self.0.aside.resize(aside);
        self.0.resume_all();
        self.0.admit_waiting();
    }

    /// Takes a place for a prediction of `party`.
    ///
    /// # Errors
    /// It has to wait.
    pub(crate) fn enter(&self, party: &Party, peer: &Peer) -> Result<Seat, Waiting<Seat>> {
        match self.0.seat_now(party, peer) {
            Some(seat) => Ok(seat),
            None => Err(self.0.line_up(party, |admit| Waiter::New { peer: peer.clone(), admit })),
        }
    }

    /// The number of predictions in progress.
    pub(crate) fn in_progress(&self) -> u32 {
        self.0.working.taken()
    }

    /// True if predictions have to wait for a place.
    pub(crate) fn is_contended(&self) -> bool {
        self.0.waiting.load(SeqCst) > 0 || self.0.working.is_full()
    }

    /// The limit that keeps a waiting prediction of `party` from its place, as a failure, which is
    /// counted.
    pub(crate) fn refusal(&self, party: &Party) -> Failure {
        let gate = &self.0;
        let failure = if gate.per_caller.is_full(party) {
            gate.per_caller.refusal()
        } else if gate.working.is_full() {
            overloaded(Limit::InFlight, "as many calls as allowed are in flight")
        } else {
            overloaded(Limit::Memory, "the memory for requests is in use")
        };
        failure.map_message(|message| format!("{message}; {WAITED}"))
    }
}

impl Gate {
    /// Takes a place, unless others wait.
    fn seat_now(self: &Arc<Self>, party: &Party, peer: &Peer) -> Option<Seat> {
        if self.waiting.load(SeqCst) > 0 || !self.working.take() {
            return None;
        }
        // Dropping it lets in those that have begun to wait meanwhile.
        let working = Working(Arc::clone(self));
        let (share, reserved) = self.needed(party, peer).ok()?;
        Some(self.seat(party.clone(), working, share, reserved))
    }

    /// Takes what a prediction needs beside a place.
    fn needed(&self, party: &Party, peer: &Peer) -> Result<(Share<Party>, Charge), Full> {
        let share = self.per_caller.take(|| party.clone()).ok_or(Full::Caller)?;
        let is_first = peer.habit().needs.get().is_none();
        let reserved = self.reserve(party, self.needs_of(peer), is_first);
        Ok((share, reserved.map_err(Full::Memory)?))
    }

    /// The memory that a request of this peer is expected to need.
    fn needs_of(&self, peer: &Peer) -> u64 {
        peer.habit().needs.get().or_else(|| self.needs.get()).unwrap_or_default()
    }

    /// Reserves memory for a prediction that has a place. If `bytes` are not free, a few get as much
    /// as a request about which nothing is known, and so does the first one of a connection whose
    /// caller holds none: what the large requests of others needed is no reason to wait for them.
    fn reserve(&self, party: &Party, bytes: u64, is_first: bool) -> Result<Charge, Lack> {
        let owner = Owner::of(party);
        let holds_none = || self.requests.held_by(owner) == 0;
        match self.requests.reserve(owner, bytes) {
            Err(_) if self.working.taken() <= FEW || is_first && holds_none() => {
                self.requests.reserve(owner, bytes.min(self.requests.limit() / UNKNOWN))
            }
            reserved => reserved,
        }
    }

    /// Reserves memory for a prediction that comes back. If nobody else is in progress, no memory
    /// would become free for it, and it goes on with what there is.
    fn reserve_again(&self, party: &Party, bytes: u64) -> Result<Charge, Lack> {
        match self.reserve(party, bytes, false) {
            Err(_) if self.working.taken() <= 1 => Ok(self.requests.open(Owner::of(party))),
            reserved => reserved,
        }
    }

    fn seat(
        self: &Arc<Self>,
        party: Party,
        working: Working,
        share: Share<Party>,
        reserved: Charge,
    ) -> Seat {
        let (gate, working) = (Arc::clone(self), Mutex::new(Some(working)));
        let returning = tokio::sync::Mutex::default();
        Seat { reserved, place: Place { gate, party, share: Some(share), working, returning } }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.give_back();
        self.0.admit_waiting();
    }
}

impl Place {
    /// Waits for a model as [`Self::aside`] does, unless as many as allowed wait for one already.
    ///
    /// # Errors
    /// `OVERLOADED` when too many predictions wait already, or the failure of `model`.
    pub(crate) async fn aside_for_model<T>(
        &self,
        model: impl Future<Output = Result<T, Failure>>,
        needs: impl FnOnce() -> u64,
    ) -> Result<Aside<T>, Failure> {
        let full = || overloaded(Limit::Waiting, "as many calls as allowed wait for a model");
        let _waiting = self.gate.aside.hold().ok_or_else(full)?;
        self.aside(model, needs).await
    }

    /// Releases the place while it waits, so that other predictions can use it, then takes a place
    /// again as soon as one is free, with the memory that it `needs` then, before others of its
    /// caller. The parts of a call may wait at the same time: they share one place.
    ///
    /// # Errors
    /// The failure of `wait`.
    pub(crate) async fn aside<T>(
        &self,
        wait: impl Future<Output = Result<T, Failure>>,
        needs: impl FnOnce() -> u64,
    ) -> Result<Aside<T>, Failure> {
        self.hold(None);
        let result = wait.await?;
        let _returning = self.returning.lock().await;
        if self.is_held() {
            return Ok(Aside { result, reserved: None });
        }
        let needs = needs();
        let returning = |admit| Waiter::Returning { needs, admit };
        let back = self.gate.line_up(&self.party, returning).admitted().await;
        let reserved = back.map(|Back { reserved, working }| {
            self.hold(Some(working));
            reserved
        });
        Ok(Aside { result, reserved })
    }

    fn is_held(&self) -> bool {
        self.working.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn hold(&self, working: Option<Working>) {
        let mut held = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *held, working);
        drop(held);
        drop(before);
    }

    /// The memory that a request of this peer is expected to need.
    pub(crate) fn needs_of(&self, peer: &Peer) -> u64 {
        self.gate.needs_of(peer)
    }

    /// Records that a prediction needs so much memory at least.
    pub(crate) fn needs(&self, bytes: u64) {
        self.gate.needs.raise(bytes);
    }

    /// Records that the prediction needed so much memory, and lets others in for whose memory there
    /// is room now.
    pub(crate) fn learn(&self, bytes: u64) {
        self.gate.needs.learn(bytes);
        self.gate.admit_waiting();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.share = None;
        self.gate.resume(&self.party);
        self.hold(None);
        // It may have had no place, but its share is free.
        self.gate.admit_waiting();
    }
}

fn overloaded(limit: Limit, message: &str) -> Failure {
    metrics::refused(limit);
    Failure::new(Reason::Overloaded, message)
}

#[cfg(test)]
mod tests;
