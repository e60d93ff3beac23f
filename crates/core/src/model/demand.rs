//! The reasons to keep a version up, and to keep its files.

use super::{ModelMachine, Slot};
use crate::{Context, Moment};

/// The reasons to keep a version up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Demand {
    pub(super) pinned: bool,
    pub(super) asked_at: Option<Moment>,
    /// An operator unloaded it: it stays down until a request asks for it.
    pub(super) suspended: bool,
    pub(super) delete: bool,
}

impl ModelMachine {
    pub(super) fn wake(&mut self) {
        self.demand.suspended = false;
        self.demand.delete = false;
    }

    pub(super) fn wanted(&self, c: &Context<'_>) -> bool {
        let fresh = |at| c.now.since(at) < c.policy.idle_ttl;
        !self.demand.suspended && (self.demand.pinned || self.demand.asked_at.is_some_and(fresh))
    }

    /// True if it should be in the engine.
    pub(super) fn may_be_up(&self, c: &Context<'_>) -> bool {
        self.slot.is_open() && self.wanted(c)
    }

    /// True if its preparation is due.
    pub(super) fn may_be_prepared(&self, c: &Context<'_>) -> bool {
        self.slot != Slot::Taken && self.wanted(c) && self.may_try(c.now)
    }

    pub(super) fn expired(&self, c: &Context<'_>) -> bool {
        self.demand.delete || c.now.since(self.wanted_at) >= c.policy.retain
    }
}
