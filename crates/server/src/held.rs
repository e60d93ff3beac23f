//! The resources of a call that computes: its places, and the memory that it is charged for. They
//! are held until its answer is sent.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use axum::body::Body;
use outrigger_budget::{Budget, Charge, Owner};
use outrigger_core::Failure;

use crate::{
    admission::{Aside, Place, Seat},
    call::Part,
    caller::{Party, Peer},
    metrics::{self, Counted, WaitsFor},
    sending::{self, hold},
};

/// The bytes of a body that may be charged before they arrive, so that not every frame is charged
/// by itself.
const AHEAD: usize = 64 << 10;

/// The resources of a call.
#[derive(Debug)]
pub(crate) struct Held {
    // The charges are released before the place, so that the next call finds room.
    /// What the request is expected to take, and has not taken yet.
    reserved: Charge,
    /// The request as it arrived.
    body: Charge,
    /// The memory of the call's main part.
    main: PartHeld,
    /// The memory of the other part, if the users of a batch have different arms.
    other: OnceLock<PartHeld>,
    /// The most that body and work took together.
    peak: AtomicU64,
    peer: Peer,
    place: Place,
    _counted: Counted,
}

/// The memory of the part of a call that runs on one version.
#[derive(Debug)]
struct PartHeld {
    /// The memory that the request is turned into: its tensors, and while JSON is parsed its parts.
    work: Charge,
    /// The model's outputs: from before the run until the answer is encoded.
    outputs: Charge,
    /// The encoded answer, and what is beside it while it is encoded.
    answer: Charge,
}

impl PartHeld {
    /// Charges to the same accounts, for another part.
    fn another(&self) -> Self {
        let Self { work, outputs, answer } = self;
        Self { work: work.another(), outputs: outputs.another(), answer: answer.another() }
    }
}

impl Held {
    pub(crate) fn new(
        Seat { place, reserved }: Seat,
        (party, peer): (&Party, Peer),
        budget: &Budget,
        counted: Counted,
    ) -> Arc<Self> {
        let owner = Owner::of(party);
        Arc::new(Self {
            reserved,
            body: budget.requests.open(owner),
            main: PartHeld {
                work: budget.requests.open(owner),
                outputs: budget.answers.open(owner),
                answer: budget.answers.open(owner),
            },
            other: OnceLock::new(),
            peak: AtomicU64::new(0),
            peer,
            place,
            _counted: counted,
        })
    }

    /// Waits for a model to come up, as [`Self::aside`] does.
    ///
    /// # Errors
    /// `OVERLOADED` when as many calls as allowed wait for a model, or the failure of `model`.
    pub(crate) async fn aside_for_model<T>(
        &self,
        model: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let _counted = metrics::waiting(WaitsFor::Model);
        self.reserved.shrink(u64::MAX);
        self.back(self.place.aside_for_model(model, || self.missing()).await)
    }

    /// Waits, and holds only what has been taken meanwhile: other calls use the place and the memory
    /// that was reserved. Takes both again afterwards.
    ///
    /// # Errors
    /// The failure of `wait`.
    pub(crate) async fn aside<T>(
        &self,
        wait: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.reserved.shrink(u64::MAX);
        self.back(self.place.aside(wait, || self.missing()).await)
    }

    fn back<T>(&self, aside: Result<Aside<T>, Failure>) -> Result<T, Failure> {
        let Aside { result, reserved } = aside?;
        if let Some(reserved) = reserved {
            reserved.pass(&self.reserved, u64::MAX);
        }
        Ok(result)
    }

    /// The memory that the request is expected to take, and has not taken yet.
    fn missing(&self) -> u64 {
        let taken = self.taken();
        let is_settled = taken > 0 && self.peak.load(Relaxed) == 0;
        let needs = if is_settled { 0 } else { self.place.needs_of(&self.peer) };
        needs.saturating_sub(taken)
    }

    /// Charges a body of which `arrived` bytes are there or set aside; `whole` is its length as the
    /// sender declares it. A declared length alone is not charged.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn receive(&self, arrived: usize, whole: Option<usize>) -> Result<(), Failure> {
        let held = self.body.bytes();
        if arrived as u64 <= held {
            return Ok(());
        }
        let ahead = arrived + arrived.min(AHEAD);
        let target = whole.unwrap_or(arrived).min(ahead).max(arrived);
        self.grow(&self.body, target as u64 - held)
    }

    /// Charges further bytes, those that are reserved first.
    fn grow(&self, charge: &Charge, more: u64) -> Result<(), Failure> {
        let reserved = self.reserved.pass(charge, more);
        if reserved < more {
            // Those that come after it reserve more.
            let needs = self.taken() + more - reserved;
            self.peer.habit().needs.raise(needs);
            self.place.needs(needs);
            charge.grow(more - reserved)?;
        }
        self.peak.fetch_max(self.taken(), Relaxed);
        Ok(())
    }

    /// The bytes that the request takes.
    fn taken(&self) -> u64 {
        let other = self.other.get().map_or(0, |other| other.work.bytes());
        self.body.bytes() + self.main.work.bytes() + other
    }

    fn part(&self, part: Part) -> &PartHeld {
        match part {
            Part::Main => &self.main,
            Part::Other(_) => self.other.get_or_init(|| self.main.another()),
        }
    }

    /// Records what the request took, and releases what was reserved beyond that. No more is taken
    /// for it.
    pub(crate) fn settle(&self) {
        let peak = self.peak.swap(0, Relaxed);
        if peak > 0 {
            self.reserved.shrink(u64::MAX);
            self.peer.habit().needs.learn(peak);
            self.place.learn(peak);
        }
    }

    /// Reduces the charge for the body to `bytes`.
    pub(crate) fn keep_body(&self, bytes: usize) {
        keep(&self.body, bytes as u64);
    }

    /// Releases the charge for the body, which has been freed.
    pub(crate) fn release_body(&self) {
        self.body.shrink(u64::MAX);
    }

    /// Charges the memory that a part of the request is turned into, in place of what it was turned
    /// into before.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn work(&self, part: Part, bytes: u64) -> Result<(), Failure> {
        let work = &self.part(part).work;
        work.shrink(u64::MAX);
        self.grow(work, bytes)
    }

    /// Reduces the charge for the memory that a part of the request was turned into to `bytes`.
    pub(crate) fn keep_work(&self, part: Part, bytes: u64) {
        keep(&self.part(part).work, bytes);
    }

    /// Charges the model's outputs for a part, in place of what was charged for them before.
    ///
    /// # Errors
    /// They do not fit.
    pub(crate) fn outputs(&self, part: Part, bytes: u64) -> Result<(), Failure> {
        let outputs = &self.part(part).outputs;
        let held = outputs.bytes();
        outputs.shrink(held.saturating_sub(bytes));
        outputs.grow(bytes.saturating_sub(held))
    }

    /// Releases the charge for the model's outputs for a part, which have been freed.
    pub(crate) fn release_outputs(&self, part: Part) {
        self.part(part).outputs.shrink(u64::MAX);
    }

    /// Charges the answer of a part, in place of what was charged for it before.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn answer(&self, part: Part, bytes: u64) -> Result<(), Failure> {
        let answer = &self.part(part).answer;
        answer.shrink(u64::MAX);
        answer.grow(bytes)
    }

    /// Charges a second form of the answer in addition to the first.
    ///
    /// # Errors
    /// It does not fit; the charge stays as it was.
    pub(crate) fn second_answer(&self, bytes: usize) -> Result<(), Failure> {
        self.main.answer.grow(bytes as u64)
    }

    /// Reduces the charge for the answers of all parts to `bytes`.
    pub(crate) fn keep_answer(&self, bytes: usize) {
        keep(&self.main.answer, bytes as u64);
        if let Some(other) = self.other.get() {
            other.answer.shrink(u64::MAX);
        }
    }

    /// Releases what the request was charged for; it has been freed, and its answer remains.
    pub(crate) fn release_request(&self) {
        self.settle();
        self.reserved.shrink(u64::MAX);
        self.release_body();
        self.main.work.shrink(u64::MAX);
        if let Some(other) = self.other.get() {
            other.work.shrink(u64::MAX);
        }
    }
}

/// Reduces a charge to `bytes`, if it is larger.
fn keep(charge: &Charge, bytes: u64) {
    charge.shrink(charge.bytes().saturating_sub(bytes));
}

/// `body`, an answer that holds the resources of its call until it has been sent.
pub(crate) fn holding(body: Body, held: &Arc<Held>) -> Body {
    held.release_request();
    let held = Arc::clone(held);
    sending::holding(body, move |data| hold(data, Arc::clone(&held)))
}

impl Drop for Held {
    fn drop(&mut self) {
        self.settle();
    }
}

#[cfg(test)]
impl Held {
    /// The resources of a call on `budget` without other limits.
    pub(crate) fn on(budget: &Budget) -> Arc<Self> {
        let peer = Peer::new(([127, 0, 0, 1], 1).into(), None);
        let party = peer.party();
        let limit = crate::limits::Limit::new(0, "one caller", crate::metrics::Limit::Caller);
        let admission = crate::admission::Admission::new((1, 1), limit, budget.requests.clone());
        let seat = admission.enter(&party, &peer).expect("a place");
        // Callers of this expect an empty account.
        seat.reserved.shrink(u64::MAX);
        let counted = crate::metrics::in_flight(crate::front::Method::Predict);
        Self::new(seat, (&party, peer), budget, counted)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::poll;

    use super::*;
    use crate::{admission::Admission, front::Method, limits::Limit};

    /// Callers of a process that knows nothing about its requests yet.
    #[tokio::test]
    async fn calls_that_wait_aside_hold_what_they_have_taken_and_reserve_the_rest_again() {
        const CALLS: u32 = 200;
        const BODY: usize = 2 << 10;
        for memory in [64 << 20, 512 << 20, 8 << 30] {
            let budget = Budget::new(memory);
            let limit = Limit::new(0, "one caller", metrics::Limit::Caller);
            let admission = Admission::new((4, CALLS), limit, budget.requests.clone());
            let peer = Peer::new(([127, 0, 0, 1], 1).into(), None);
            let party = peer.party();
            let enter = || {
                let seat = admission.enter(&party, &peer).expect("a place");
                let counted = metrics::in_flight(Method::Predict);
                let held = Held::new(seat, (&party, peer.clone()), &budget, counted);
                held.receive(BODY, Some(BODY)).expect("room for its body");
                held
            };
            let mut waiting = Vec::new();
            for _ in 1..CALLS {
                let held = enter();
                let mut aside = Box::pin(async move {
                    held.aside_for_model(pending::<Result<(), Failure>>()).await
                });
                assert!(poll!(aside.as_mut()).is_pending());
                waiting.push(aside);
            }
            assert_eq!(budget.requests.used(), waiting.len() as u64 * BODY as u64);
            let last = enter();
            last.aside(async { Ok(()) }).await.expect("a place again");
            assert_eq!(last.body.bytes() + last.reserved.bytes(), budget.requests.limit() / 16);
        }
    }
}
