//! The resources of a call that computes: its places, and the memory that it is charged for. They are
//! held until its answer is sent.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use outrigger_budget::{Budget, Charge, Owner};
use outrigger_core::{Failure, ModelName};

use crate::{
    admission::Place,
    caller::Party,
    limits::Share,
    metrics::Counted,
    sending::{self, hold},
};

/// The bytes of a body that may be charged before they arrive, so that not every frame is charged by
/// itself.
const AHEAD: usize = 64 << 10;

/// The resources of a call.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) place: Place,
    _caller: Share<Party>,
    model: OnceLock<Share<ModelName>>,
    /// The request as it arrived.
    body: Charge,
    /// The memory that the request is turned into: its tensors, and while JSON is parsed its parts.
    work: Charge,
    /// The model's outputs, and the answer.
    answer: Charge,
    _counted: Counted,
}

impl Held {
    pub(crate) fn new(
        (place, caller): (Place, Share<Party>),
        party: &Party,
        budget: &Budget,
        counted: Counted,
    ) -> Arc<Self> {
        let owner = Owner::of(party);
        Arc::new(Self {
            place,
            _caller: caller,
            model: OnceLock::new(),
            body: budget.requests.open(owner),
            work: budget.requests.open(owner),
            answer: budget.answers.open(owner),
            _counted: counted,
        })
    }

    /// Holds the model's share until the call ends.
    pub(crate) fn count_for_model(&self, share: Share<ModelName>) {
        // A call concerns one model, so the cell is empty.
        let _ = self.model.set(share);
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
        self.body.grow(target as u64 - held)
    }

    /// Reduces the charge for the body to `bytes`.
    pub(crate) fn keep_body(&self, bytes: usize) {
        keep(&self.body, bytes);
    }

    /// Releases the charge for the body, which has been freed.
    pub(crate) fn release_body(&self) {
        self.body.shrink(u64::MAX);
    }

    /// Charges the memory that the request is turned into, in place of what it was turned into
    /// before.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn work(&self, bytes: u64) -> Result<(), Failure> {
        self.work.shrink(u64::MAX);
        self.work.grow(bytes)
    }

    /// Charges the answer, in place of what was charged for it before.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn answer(&self, bytes: u64) -> Result<(), Failure> {
        self.answer.shrink(u64::MAX);
        self.answer.grow(bytes)
    }

    /// Charges a second form of the answer in addition to the first.
    ///
    /// # Errors
    /// It does not fit; the charge stays as it was.
    pub(crate) fn second_answer(&self, bytes: usize) -> Result<(), Failure> {
        self.answer.grow(bytes as u64)
    }

    /// Reduces the charge for the answer to `bytes`.
    pub(crate) fn keep_answer(&self, bytes: usize) {
        keep(&self.answer, bytes);
    }

    /// Releases what the request was charged for; it has been freed, and its answer remains.
    pub(crate) fn release_request(&self) {
        self.release_body();
        self.work.shrink(u64::MAX);
    }
}

/// Reduces a charge to `bytes`, if it is larger.
fn keep(charge: &Charge, bytes: usize) {
    charge.shrink(charge.bytes().saturating_sub(bytes as u64));
}

/// `body`, an answer that holds the resources of its call until it has been sent.
pub(crate) fn holding(body: Body, held: &Arc<Held>) -> Body {
    held.release_request();
    let held = Arc::clone(held);
    sending::holding(body, move |data| hold(data, Arc::clone(&held)))
}

#[cfg(test)]
impl Held {
    /// The resources of a call on `budget` without other limits.
    pub(crate) fn on(budget: &Budget) -> Arc<Self> {
        let party = Party::Unknown(std::net::Ipv4Addr::LOCALHOST.into());
        let limit = crate::limits::Limit::new(0, "one caller", crate::metrics::Limit::Caller);
        let share = limit.enter(|| party.clone()).unwrap();
        let place = crate::admission::Admission::new(1, 1).enter().unwrap();
        let counted = crate::metrics::in_flight(crate::front::Method::Predict);
        Self::new((place, share), &party, budget, counted)
    }
}
