//! The servers together: where each version is, and what that means for the control plane. Without
//! I/O.
//!
//! A version is up as soon as one server has it. It is lost when no server that answers has it, and
//! then added again; while another server has it, a server that lost it loads it by itself.

use std::{collections::BTreeMap, sync::Arc};

use outrigger_core::{
    Failure, Moment, Reason, ServableId,
    engine::{Condition, FromEngine},
};

/// The report of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// The orders that it reports about.
    pub(crate) generation: u64,
    /// The versions that it deals with, or the reason why it does not answer.
    pub(crate) state: Result<BTreeMap<ServableId, Standing>, Away>,
    /// A fault that it has beside these, for people.
    pub(crate) remark: Option<String>,
}

/// A server does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Away {
    /// The failure of the last question. Its reason is DEADLINE if the server hangs.
    pub(crate) failure: Failure,
    /// The time since which it has not answered.
    pub(crate) since: Moment,
}

/// A version on one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is being loaded, or was not looked at yet.
    Pending,
    Ready,
    /// The server does not have it.
    Missing(Failure),
    /// It was removed, and the server may still have it.
    Leaving,
}

/// The orders to all servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// Grows with each change of the versions.
    pub(crate) generation: u64,
    /// The versions that servers should have.
    pub(crate) wanted: BTreeMap<ServableId, Arc<Wanted>>,
}

/// A version that servers should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The orders that it was added with.
    pub(crate) since: u64,
    /// True if it was reported as up.
    pub(crate) is_up: bool,
    /// The servers that have it.
    pub(crate) ready: Vec<usize>,
}

/// The state of all servers.
#[derive(Debug)]
pub(crate) struct Fleet {
    names: Vec<Arc<str>>,
    reports: Vec<Option<Report>>,
    orders: Orders,
    /// Versions that were removed, with the orders that say so.
    leaving: BTreeMap<ServableId, u64>,
    condition: Condition,
}

/// The news for the control plane.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) condition: Option<Condition>,
    pub(crate) versions: Vec<FromEngine>,
}

impl Wanted {
    /// True if the server with this number may load it. A version that was up and that no other server
    /// has was lost with its engine: it is loaded when it is added again.
    pub(crate) fn may_load(&self, server: usize) -> bool {
        !self.is_up || self.ready.iter().any(|ready| *ready != server)
    }
}

impl Fleet {
    /// Servers with these names, about which nothing is known.
    pub(crate) fn new(names: Vec<Arc<str>>) -> Self {
        Self {
            reports: names.iter().map(|_| None).collect(),
            names,
            orders: Orders::default(),
            leaving: BTreeMap::new(),
            condition: Condition::default(),
        }
    }

    pub(crate) fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Orders a version.
    pub(crate) fn add(&mut self, id: ServableId) {
        self.orders.generation += 1;
        let since = self.orders.generation;
        let wanted = Wanted { since, is_up: false, ready: Vec::new() };
        self.orders.wanted.insert(id, Arc::new(wanted));
    }

    /// Removes a version. It is gone when all servers have said so, or do not answer.
    pub(crate) fn remove(&mut self, id: ServableId) {
        self.orders.generation += 1;
        self.orders.wanted.remove(&id);
        self.leaving.insert(id, self.orders.generation);
    }

    /// Takes the report of the server with this number.
    pub(crate) fn reported(&mut self, server: usize, report: Report) {
        self.reports[server] = Some(report);
    }

    /// The news since the last call.
    pub(crate) fn news(&mut self) -> News {
        let mut versions = self.gone();
        let ids: Vec<_> = self.orders.wanted.keys().cloned().collect();
        versions.extend(ids.into_iter().filter_map(|id| self.judge(id)));
        let condition = self.condition();
        let is_new = condition != self.condition;
        self.condition.clone_from(&condition);
        News { condition: is_new.then_some(condition), versions }
    }

    /// The versions that have left all servers.
    fn gone(&mut self) -> Vec<FromEngine> {
        let reports = &self.reports;
        let has_left = |id: &ServableId, since: u64| {
            reports.iter().all(|report| {
                report.as_ref().is_some_and(|report| {
                    let holds = report.state.as_ref().is_ok_and(|state| state.contains_key(id));
                    report.generation >= since && !holds
                })
            })
        };
        let gone = self.leaving.extract_if(.., |id, since| has_left(id, *since));
        gone.map(|(id, _)| FromEngine::Gone(id)).collect()
    }

    /// Decides about a version that is wanted.
    fn judge(&mut self, id: ServableId) -> Option<FromEngine> {
        let before = self.orders.wanted.get(&id)?;
        let standing = |server| self.standing(server, &id, before.since);
        let standings: Vec<_> = (0..self.names.len()).map(standing).collect();
        let is_ready = |server: &usize| standings[*server] == Some(Standing::Ready);
        let ready: Vec<_> = (0..standings.len()).filter(is_ready).collect();
        let was_up = before.is_up;
        let is_up = was_up || !ready.is_empty();
        if is_up != was_up || before.ready != ready {
            let wanted = Wanted { since: before.since, is_up, ready: ready.clone() };
            self.orders.wanted.insert(id.clone(), Arc::new(wanted));
        }
        if !ready.is_empty() {
            return (!was_up).then_some(FromEngine::Up(id));
        }
        let missing = standings.iter().flatten().filter_map(|standing| match standing {
            Standing::Missing(failure) => Some(failure.clone()),
            _ => None,
        });
        // The refusal of a model says more than that a server does not have it.
        let failure = missing.max_by_key(|failure| failure.reason != Reason::EngineUnavailable)?;
        let is_open = |standing: &Option<Standing>| {
            matches!(standing, Some(Standing::Pending | Standing::Leaving))
        };
        if standings.iter().any(is_open) {
            return None;
        }
        self.orders.generation += 1;
        self.orders.wanted.remove(&id);
        Some(if was_up { FromEngine::Lost(id) } else { FromEngine::Failed(id, failure) })
    }

    /// The standing of a version on a server, which reports about it since the orders `since`; `None`
    /// if the server does not answer.
    fn standing(&self, server: usize, id: &ServableId, since: u64) -> Option<Standing> {
        let Some(Report { generation, state, .. }) = &self.reports[server] else {
            return Some(Standing::Pending);
        };
        let state = state.as_ref().ok()?;
        let known = state.get(id).filter(|_| *generation >= since);
        Some(known.cloned().unwrap_or(Standing::Pending))
    }

    fn condition(&self) -> Condition {
        let away = self.reports.iter().flatten().filter_map(|report| report.state.as_ref().err());
        let away: Vec<_> = away.collect();
        let known = self.reports.iter().flatten().count();
        if away.len() == self.names.len() {
            let texts: Vec<_> = away.iter().map(|away| away.failure.message.as_str()).collect();
            let hang = away.iter().all(|away| away.failure.reason == Reason::Deadline);
            let reason = if hang { Reason::Deadline } else { Reason::EngineUnavailable };
            return Condition {
                reachable: Some(false),
                down_since: away.iter().map(|away| away.since).max(),
                failure: Some(Failure::new(reason, texts.join("; "))),
                ..Condition::default()
            };
        }
        if known == away.len() {
            // The others have not said anything yet.
            return self.condition.clone();
        }
        let faults: Vec<_> = (0..self.names.len()).filter_map(|it| self.fault(it)).collect();
        let message =
            || format!("{} of {} servers: {}", faults.len(), self.names.len(), faults.join("; "));
        let failure = (!faults.is_empty() && self.names.len() > 1)
            .then(|| Failure::new(Reason::EngineUnavailable, message()));
        Condition { failure, ..Condition::up() }
    }

    /// The fault of a server, for people.
    fn fault(&self, server: usize) -> Option<String> {
        let report = self.reports[server].as_ref();
        if let Some(Report { state: Err(away), .. }) = report {
            return Some(away.failure.message.clone());
        }
        let name = &self.names[server];
        let up_elsewhere = self.orders.wanted.iter().filter(|(_, wanted)| wanted.is_up);
        let mut lacking = up_elsewhere.filter_map(|(id, wanted)| {
            match self.standing(server, id, wanted.since)? {
                Standing::Missing(failure) => {
                    Some(format!("{name} does not have {id}: {}", failure.message))
                }
                Standing::Pending => Some(format!("{name} loads {id}")),
                Standing::Ready | Standing::Leaving => None,
            }
        });
        let remark = || Some(format!("{name} {}", report?.remark.as_ref()?));
        lacking.next().or_else(remark)
    }
}

#[cfg(test)]
mod tests;
