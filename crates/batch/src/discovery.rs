//! The look-ups of hosts' names, and the questions for the health of hosts: periodic, and both at
//! once when errors rise.

mod alarm;

use std::{sync::Arc, time::Duration};

use outrigger_dispatch::HostId;
use outrigger_oip_client::{HostConfig, ModelRef};
use serde::{Deserialize, Serialize};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::alarm::Alarm;
use crate::{Endpoint, Resolve, lease::RENEWAL, names::Names};

/// The time limit of a question.
const QUESTION: Duration = Duration::from_secs(30);

/// The times of the periodic work of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periods {
    /// Between two look-ups of all names.
    pub lookup: Duration,
    /// Between two questions to all hosts.
    pub health: Duration,
    /// Between two renewals of the leases of chunks; those are at least a second apart.
    pub renewal: Duration,
    /// Between the parts in which a chunk is committed that takes long.
    pub part: Duration,
    /// The longest wait of a job that is interrupted for the answers to its requests in flight.
    pub drain: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            lookup: Duration::from_secs(120),
            health: Duration::from_secs(900),
            renewal: RENEWAL,
            part: Duration::from_secs(60),
            drain: Duration::from_secs(10),
        }
    }
}

/// The last answer of a host to the question whether the model is ready. A host that is not ready is
/// not withdrawn for it: hosts report to be ready while every call fails, and the other way round.
/// Only calls decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It reports the model to be ready.
    Ready,
    /// It reports that the model is not ready, or not there.
    NotReady,
    /// It has not answered, or in a way that does not say.
    Silent,
}

impl Health {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady => "not_ready",
            Self::Silent => "silent",
        }
    }
}

/// A host that is asked for its health.
pub(crate) type Asked = (HostId, Arc<dyn Endpoint>);

/// News of the hosts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The hosts are these from now on.
    Hosts(Vec<HostConfig>),
    /// The health of a host.
    Health(HostId, Health),
}

/// Looks names up and asks hosts for their health.
#[derive(Debug)]
pub(crate) struct Discovery {
    resolver: Arc<dyn Resolve>,
    pub(crate) periods: Periods,
    model: (Arc<str>, Option<Arc<str>>),
    names: Names,
    /// True if the hosts of `names` were not reported since they were configured.
    is_new: bool,
    /// The look-up under way.
    lookup: JoinSet<(Names, Vec<String>)>,
    asked: Vec<Asked>,
    /// The questions under way.
    questions: JoinSet<(HostId, Health)>,
    next_lookup: Instant,
    next_question: Instant,
    alarm: Alarm,
    /// The names that could not be looked up at the last time.
    pub(crate) problems: Vec<String>,
}

impl Discovery {
    /// The discovery of a job's hosts, whose `names` were looked up just now, for this model and
    /// version.
    pub(crate) fn new(
        (resolver, periods): (Arc<dyn Resolve>, Periods),
        model: (Arc<str>, Option<Arc<str>>),
        names: Names,
    ) -> Self {
        let now = Instant::now();
        Self {
            resolver,
            periods,
            model,
            names,
            is_new: false,
            lookup: JoinSet::new(),
            asked: Vec::new(),
            questions: JoinSet::new(),
            next_lookup: now + periods.lookup,
            next_question: now + periods.health,
            alarm: Alarm::new(now),
            problems: Vec::new(),
        }
    }

    /// The present hosts.
    pub(crate) fn hosts(&self) -> Vec<HostConfig> {
        self.names.hosts()
    }

    /// Uses other configured hosts. They are reported when they have been looked up, at once.
    pub(crate) fn configure(&mut self, hosts: Vec<HostConfig>) {
        self.lookup = JoinSet::new();
        self.names = Names::new(hosts);
        self.is_new = true;
        self.next_lookup = Instant::now();
    }

    /// Asks these hosts from now on. The health of others is not reported any more.
    pub(crate) fn ask(&mut self, hosts: Vec<Asked>) {
        self.asked = hosts;
    }

    /// Takes the calls into account that have ended so far, and those that have failed without
    /// fault of their rows. When failures rise, names are looked up and hosts are asked at once.
    pub(crate) fn calls(&mut self, ended: u64, failed: u64) {
        let now = Instant::now();
        if self.alarm.rises((ended, failed), self.periods.lookup, now) {
            (self.next_lookup, self.next_question) = (now, now);
        }
    }

    /// The next finding. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Finding {
        loop {
            let is_looking = !self.lookup.is_empty();
            let wake = match is_looking {
                true => self.next_question,
                false => self.next_question.min(self.next_lookup),
            };
            tokio::select! {
                biased;
                Some(looked_up) = self.lookup.join_next() => {
                    // One that was given up for other hosts says nothing.
                    let Ok((names, problems)) = looked_up else { continue };
                    self.problems = problems;
                    if let Some(hosts) = self.changed(names) {
                        return Finding::Hosts(hosts);
                    }
                }
                Some(answer) = self.questions.join_next() => {
                    let Ok((host, health)) = answer else { continue };
                    if self.asked.iter().any(|(asked, _)| *asked == host) {
                        return Finding::Health(host, health);
                    }
                }
                () = sleep_until(wake) => self.begin(),
            }
        }
    }

    /// The hosts, if they are other ones than before. Without any, those before are kept.
    fn changed(&mut self, names: Names) -> Option<Vec<HostConfig>> {
        let (before, hosts) = (self.names.hosts(), names.hosts());
        self.names = names;
        let is_changed = (before != hosts || self.is_new) && !hosts.is_empty();
        self.is_new &= !is_changed;
        is_changed.then_some(hosts)
    }

    /// Begins what is due.
    fn begin(&mut self) {
        let now = Instant::now();
        if self.next_lookup <= now && self.lookup.is_empty() {
            self.next_lookup = now + self.periods.lookup;
            let (names, resolver) = (self.names.clone(), Arc::clone(&self.resolver));
            self.lookup.spawn(async move { names.looked_up(&*resolver).await });
        }
        if self.next_question <= now {
            self.next_question = now + self.periods.health;
            // Questions of the last time without an answer are given up.
            self.questions = JoinSet::new();
            for (host, endpoint) in self.asked.clone() {
                let (model, version) = self.model.clone();
                self.questions.spawn(async move {
                    let model = ModelRef { name: &model, version: version.as_deref() };
                    (host, health(&*endpoint, model).await)
                });
            }
        }
    }
}

/// The health of a host.
async fn health(endpoint: &dyn Endpoint, model: ModelRef<'_>) -> Health {
    match endpoint.is_ready(model, Instant::now() + QUESTION).await {
        Ok(true) => Health::Ready,
        Ok(false) => Health::NotReady,
        Err(_) => Health::Silent,
    }
}

#[cfg(test)]
mod tests;
