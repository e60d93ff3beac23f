//! The reasons to keep a version up, and to keep its files.

use super::ModelMachine;
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

    pub(super) fn expired(&self, c: &Context<'_>) -> bool {
        self.demand.delete || c.now.since(self.wanted_at) >= c.policy.retain
    }
}
