//! The state of the hosts, and the selection of one for each attempt.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use outrigger_core::Moment;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::policy::{
    Aimd, Attempts, Class, Cut, Ejection, EjectionSettings, Limiter, Outcome, Place, Sample,
};

/// The most models whose versions a client remembers.
const MODELS: usize = 1024;

/// The hosts of a client.
pub(crate) struct Hosts {
    states: Mutex<Vec<State>>,
    /// Notified when a call ends.
    ended: Notify,
    start: Instant,
}

/// The state of one host.
struct State {
    ejection: Ejection,
    limiter: Box<dyn Limiter>,
    in_flight: usize,
    /// The number of the last attempt, so that equal hosts take turns.
    used: u64,
    /// The largest message that the host takes in bytes, as its refusals have named it.
    most: Option<u64>,
    /// The version that answered last, by model.
    versions: HashMap<Arc<str>, String>,
}

/// The place of one attempt at a host. An attempt that is dropped before it has ended says nothing
/// about the host.
pub(crate) struct Turn<'a> {
    hosts: &'a Hosts,
    pub(crate) host: usize,
    is_trial: bool,
    sent: Moment,
    in_flight: usize,
    has_ended: bool,
}

/// The reason why no host gets an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoHost {
    /// All hosts are ejected, or have failed on the message.
    Out,
    /// All hosts had as many calls as they take until the deadline.
    Busy,
}

impl Hosts {
    /// `count` hosts without calls, each with at most `most` in flight.
    pub(crate) fn new(count: usize, most: usize, settings: EjectionSettings) -> Self {
        let state = || State {
            ejection: Ejection::new(settings),
            limiter: Box::new(Aimd::new(most, most)),
            in_flight: 0,
            used: 0,
            most: None,
            versions: HashMap::new(),
        };
        let states = Mutex::new((0..count).map(|_| state()).collect());
        Self { states, ended: Notify::new(), start: Instant::now() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present time.
    pub(crate) fn now(&self) -> Moment {
        Moment::at(self.start.elapsed())
    }

    /// The number of hosts.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The limits of calls in flight, by host.
    pub(crate) fn limits(&self) -> Vec<usize> {
        self.lock().iter().map(|state| state.limiter.limit()).collect()
    }

    /// The places, by host.
    pub(crate) fn places(&self) -> Vec<Place> {
        let now = self.now();
        self.lock().iter().map(|state| state.ejection.place(now)).collect()
    }

    /// Waits for the place of the next attempt at a message.
    pub(crate) async fn turn(
        &self,
        attempts: &Attempts,
        until: Instant,
    ) -> Result<Turn<'_>, NoHost> {
        loop {
            let ended = self.ended.notified();
            match self.try_turn(attempts) {
                Err(NoHost::Busy) => timeout_at(until, ended).await.map_err(|_| NoHost::Busy)?,
                decided => return decided,
            }
        }
    }

    /// The place of the next attempt, if there is one now: at a host that is to be tried again, else
    /// at another one than the last and with the fewest calls for its limit.
    fn try_turn(&self, attempts: &Attempts) -> Result<Turn<'_>, NoHost> {
        let (now, mut states) = (self.now(), self.lock());
        let admitted = states.iter().enumerate().filter_map(|(host, state)| {
            let place = state.ejection.place(now);
            let is_in = attempts.admits(host) && !matches!(place, Place::Out(_));
            is_in.then_some((host, place == Place::Trial))
        });
        let admitted: Vec<_> = admitted.collect();
        let free = admitted.iter().filter(|(host, _)| states[*host].is_free());
        let load = |host: usize| {
            let State { in_flight, limiter, .. } = &states[host];
            in_flight * 1024 / limiter.limit()
        };
        let best = free.min_by_key(|(host, is_trial)| {
            (!is_trial, attempts.last() == Some(*host), load(*host), states[*host].used)
        });
        let Some(&(host, is_trial)) = best else {
            return Err(if admitted.is_empty() { NoHost::Out } else { NoHost::Busy });
        };
        let used = states.iter().map(|state| state.used).max().unwrap_or_default();
        let state = &mut states[host];
        state.used = used + 1;
        if is_trial {
            state.ejection.try_again();
        }
        state.in_flight += 1;
        let in_flight = state.in_flight;
        Ok(Turn { hosts: self, host, is_trial, sent: now, in_flight, has_ended: false })
    }

    /// The largest message that a host takes in bytes, if its refusals have named it.
    pub(crate) fn most(&self, host: usize) -> Option<u64> {
        self.lock()[host].most
    }

    /// Records the version that answered. Returns the one before, if it was another.
    pub(crate) fn answered(&self, host: usize, model: &Arc<str>, version: &str) -> Option<String> {
        let versions = &mut self.lock()[host].versions;
        match versions.get_mut(model) {
            Some(last) if last == version => None,
            Some(last) => Some(std::mem::replace(last, version.to_owned())),
            None => {
                if versions.len() < MODELS {
                    versions.insert(Arc::clone(model), version.to_owned());
                }
                None
            }
        }
    }
}

impl State {
    fn is_free(&self) -> bool {
        self.in_flight < self.limiter.limit()
    }
}

impl Turn<'_> {
    /// Ends the attempt with a success, or a failure of this class. `jitter` is a random number of
    /// [0, 1).
    pub(crate) fn end(mut self, failure: Option<Class>, rows: u64, jitter: f64) {
        self.has_ended = true;
        let (now, mut states) = (self.hosts.now(), self.hosts.lock());
        let is_only = states.len() == 1;
        let state = &mut states[self.host];
        let (sent, in_flight) = (self.sent, self.in_flight);
        state.limiter.ended(&Sample { sent, ended: now, rows, in_flight, failure });
        // A limit of rows is the model's, and not remembered for the host.
        if let Some(Class::TooLarge(Cut { bytes: Some(bytes), .. })) = failure {
            state.most = Some(state.most.map_or(bytes, |most| most.min(bytes)));
        }
        // An answer with a doubtful failure may be the fault of the message, and no other host is
        // there for the calls of others.
        let counts = !(is_only && failure == Some(Class::Ambiguous));
        match Outcome::of(failure).filter(|_| counts) {
            Some(outcome) => state.ejection.ended(outcome, self.is_trial, (now, jitter)),
            None if self.is_trial => state.ejection.abandoned(),
            None => {}
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut states = self.hosts.lock();
        let state = &mut states[self.host];
        state.in_flight -= 1;
        if self.is_trial && !self.has_ended {
            state.ejection.abandoned();
        }
        drop(states);
        self.hosts.ended.notify_waiters();
    }
}
