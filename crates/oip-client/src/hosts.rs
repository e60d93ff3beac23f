//! The state of the hosts, and the selection of one for each attempt.

mod given_up;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outrigger_core::Moment;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use self::{given_up::GivenUp, state::State};
pub(crate) use self::{given_up::Place as CallPlace, state::Key};
use crate::{
    Failure,
    policy::{Attempts, Class, Cut, EjectionSettings, Outcome, Place, Sample},
};

/// The hosts of a client.
pub(crate) struct Hosts {
    names: Vec<Arc<str>>,
    states: Mutex<Vec<State>>,
    /// The calls that go on without their callers.
    given_up: Arc<GivenUp>,
    /// Notified when a call ends.
    ended: Notify,
    /// By host: notified when a call fails as if the host were away, or lacked the model.
    suspects: Vec<Notify>,
    start: Instant,
}

/// The place of one attempt at a host. An attempt that is dropped before it has ended says nothing
/// about the host, unless nearly all of its time had passed: then it had no answer in time.
pub(crate) struct Turn<'a> {
    hosts: &'a Hosts,
    pub(crate) host: usize,
    key: Key,
    is_trial: bool,
    /// True if the host may fail this call too, and another one could answer.
    pub(crate) is_doubtful: bool,
    sent: Moment,
    /// The time by which it is late.
    late: Option<Instant>,
    in_flight: usize,
    has_ended: bool,
}

/// The reason why no host gets an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoHost {
    /// All hosts have failed on the message, or are withdrawn while another one answers.
    Out,
    /// All hosts had as many calls as they take until the deadline.
    Busy,
    /// All hosts still work on as many calls of the model as it may have, and their callers have given
    /// them up.
    GivenUp,
}

/// The meaning of the end of a call for its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It answered, or failed.
    Of(Outcome),
    /// It does not have the model.
    Lacks,
    /// Nothing.
    Nothing,
}

/// A call that has ended, for its host.
#[derive(Debug, Clone, Copy)]
struct Judged<'a> {
    host: usize,
    key: &'a Key,
    is_trial: bool,
    /// The time, and a random number of [0, 1).
    at: (Moment, f64),
}

impl Hosts {
    /// The hosts called `names`, without calls, each with at most `most` in flight.
    pub(crate) fn new(names: Vec<Arc<str>>, most: usize, settings: EjectionSettings) -> Self {
        let states = Mutex::new(names.iter().map(|_| State::new(most, settings)).collect());
        let suspects = names.iter().map(|_| Notify::new()).collect();
        let given_up = Arc::new(GivenUp::of_each(most.div_ceil(2)));
        Self { names, states, given_up, ended: Notify::new(), suspects, start: Instant::now() }
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
        self.names.len()
    }

    /// The limits of calls in flight, by host.
    pub(crate) fn limits(&self) -> Vec<usize> {
        self.lock().iter().map(|state| state.limiter.limit()).collect()
    }

    /// The places for a model, by host.
    pub(crate) fn places(&self, key: &Key) -> Vec<Place> {
        let now = self.now();
        self.lock().iter().map(|state| state.place(key, now)).collect()
    }

    /// Waits for the place of the next attempt at a message.
    pub(crate) async fn turn(
        &self,
        key: &Key,
        attempts: &Attempts,
        until: Instant,
    ) -> Result<Turn<'_>, NoHost> {
        loop {
            let ended = self.ended.notified();
            match self.try_turn(key, attempts) {
                Err(NoHost::Busy) => timeout_at(until, ended).await.map_err(|_| NoHost::Busy)?,
                decided => return decided,
            }
        }
    }

    /// The place of the next attempt, if there is one now: at a host that is to be tried again, else
    /// at another one than the last and with the fewest calls for its limit. If none is in rotation,
    /// all are tried: one may have come back. After a failure so are those without the model as far
    /// as known: one may have loaded it, and one that has not says so at once.
    fn try_turn(&self, key: &Key, attempts: &Attempts) -> Result<Turn<'_>, NoHost> {
        let now = self.now();
        let mut states = self.lock();
        let places: Vec<_> = states.iter().map(|state| state.place(key, now)).collect();
        let gets_calls = |place: &Place| !matches!(place, Place::Out(_));
        let in_rotation = places.iter().filter(|place| gets_calls(place)).count();
        let is_repeated = attempts.last().is_some();
        let may_take = |host: usize| {
            let may_have_it = is_repeated && states[host].only_lacks(key);
            in_rotation == 0 || gets_calls(&places[host]) || may_have_it
        };
        let admitted = (0..places.len()).filter(|host| attempts.admits(*host) && may_take(*host));
        let admitted: Vec<_> = admitted.collect();
        let is_full = |host: &usize| self.given_up.is_full(&(*host, key.clone()));
        if !admitted.is_empty() && admitted.iter().all(is_full) {
            return Err(NoHost::GivenUp);
        }
        let admitted: Vec<_> = admitted.into_iter().filter(|host| !is_full(host)).collect();
        let best = admitted.iter().copied().filter(|host| states[*host].is_free());
        let best = best.min_by_key(|host| {
            let is_trial = places[*host] == Place::Trial;
            let is_out = !gets_calls(&places[*host]);
            let state = &states[*host];
            (!is_trial, attempts.last() == Some(*host), is_out, state.load(), state.used)
        });
        let Some(host) = best else {
            return Err(if admitted.is_empty() { NoHost::Out } else { NoHost::Busy });
        };
        let used = states.iter().map(|state| state.used).max().unwrap_or_default();
        let state = &mut states[host];
        let is_trial = places[host] == Place::Trial || in_rotation == 0;
        if let Some(ejection) = state.ejection(key).filter(|_| is_trial) {
            ejection.try_again();
        }
        state.used = used + 1;
        state.in_flight += 1;
        Ok(Turn {
            hosts: self,
            host,
            key: key.clone(),
            is_trial,
            is_doubtful: in_rotation > 1 && (is_trial || state.is_failing(key)),
            sent: now,
            late: None,
            in_flight: state.in_flight,
            has_ended: false,
        })
    }

    /// The largest message that a host takes in bytes, if its refusals have named it.
    pub(crate) fn most(&self, host: usize) -> Option<u64> {
        self.lock()[host].most
    }

    /// Records the version that answered. Returns the one before, if it was another.
    pub(crate) fn answered(&self, host: usize, key: &Key, version: &str) -> Option<String> {
        self.lock()[host].answered(key, version)
    }

    /// Records that these hosts have failed a message that another one has answered: the fault was
    /// theirs. `jitter` is a random number of [0, 1).
    pub(crate) fn blame(&self, hosts: &[usize], key: &Key, jitter: f64) {
        let now = self.now();
        let mut states = self.lock();
        for host in hosts.iter().copied() {
            let is_trial = states[host].place(key, now) != Place::In;
            let call = Judged { host, key, is_trial, at: (now, jitter) };
            self.judge(&mut states, &call, Verdict::Of(Outcome::Failure));
        }
    }

    /// Records what the end of a call says about its host. A host is withdrawn only while another
    /// one is there for its calls.
    fn judge(&self, states: &mut [State], call: &Judged<'_>, verdict: Verdict) {
        let Judged { host, key, is_trial, at } = *call;
        let mut others = states.iter().enumerate().filter(|(other, _)| *other != host);
        let has_others = others.any(|(_, other)| other.place(key, at.0) == Place::In);
        let Some(ejection) = states[host].ejection(key) else { return };
        let was_out = ejection.place(at.0) != Place::In;
        match verdict {
            Verdict::Of(Outcome::Success) => ejection.ended(Outcome::Success, is_trial, at),
            Verdict::Of(outcome) if has_others => ejection.ended(outcome, is_trial, at),
            Verdict::Lacks if has_others => ejection.withdraw(at),
            _ if is_trial => ejection.abandoned(),
            _ => {}
        }
        let is_out = ejection.place(at.0) != Place::In;
        if was_out != is_out {
            self.show(call, verdict, is_out);
        }
    }

    fn show(&self, call: &Judged<'_>, verdict: Verdict, is_out: bool) {
        let server = &self.names[call.host];
        let model = &call.key.0;
        match (is_out, verdict) {
            (true, Verdict::Lacks) => {
                tracing::warn!(%server, %model, "a server does not have a model; others get its calls");
            }
            (true, _) => {
                tracing::warn!(%server, %model, "a server fails the calls of a model; others get them");
            }
            (false, _) => {
                tracing::info!(%server, %model, "a server gets the calls of a model again")
            }
        }
        self.suspects[call.host].notify_one();
    }

    /// Records whether a host answers at all.
    pub(crate) fn set_away(&self, host: usize, is_away: bool) {
        let now = self.now();
        self.lock()[host].set_away(is_away, now);
        self.ended.notify_waiters();
    }

    /// Records whether a host lacks a model.
    pub(crate) fn set_absent(&self, host: usize, key: &Key, is_absent: bool) {
        self.lock()[host].set_absent(key, is_absent);
        self.ended.notify_waiters();
    }

    /// Forgets a model at a host.
    pub(crate) fn forget(&self, host: usize, key: &Key) {
        self.lock()[host].forget(key);
    }

    /// The time of the last call that a host answered.
    pub(crate) fn last_answer(&self, host: usize) -> Option<Instant> {
        self.lock()[host].answered
    }

    /// The models whose calls a host does not get because it failed some.
    pub(crate) fn ejected(&self, host: usize) -> Vec<Arc<str>> {
        let now = self.now();
        let mut names: Vec<_> = self.lock()[host].ejected(now).cloned().collect();
        names.sort_unstable();
        names
    }

    /// Waits until a call fails as if the host were away, or lacked the model.
    pub(crate) async fn suspected(&self, host: usize) {
        self.suspects[host].notified().await;
    }
}

impl Turn<'_> {
    /// The place of the call, which it keeps while the host works on it.
    pub(crate) fn place(&self) -> CallPlace {
        GivenUp::place(&self.hosts.given_up, (self.host, self.key.clone()))
    }

    /// Begins the attempt, which ends by `until`.
    pub(crate) fn begins(&mut self, until: Instant) {
        let time = until.saturating_duration_since(Instant::now());
        self.late = Some(until - time / 10);
    }

    /// Ends the attempt with a success or a failure. `jitter` is a random number of [0, 1).
    pub(crate) fn end(mut self, failure: Option<&Failure>, rows: u64, jitter: f64) {
        self.ended(failure, rows, jitter);
    }

    fn ended(&mut self, failure: Option<&Failure>, rows: u64, jitter: f64) {
        self.has_ended = true;
        let now = self.hosts.now();
        let mut states = self.hosts.lock();
        let class = failure.map(|failure| failure.class);
        let state = &mut states[self.host];
        if class.is_none() {
            state.answered = Some(Instant::now());
        }
        state.limiter.ended(&Sample {
            sent: self.sent,
            ended: now,
            rows,
            in_flight: self.in_flight,
            failure: class,
        });
        // A limit of rows is the model's, and not remembered for the host.
        if let Some(Class::TooLarge(Cut { bytes: Some(bytes), .. })) = class {
            state.most = Some(state.most.map_or(bytes, |most| most.min(bytes)));
        }
        let verdict = verdict(failure);
        let Self { host, key, is_trial, .. } = &*self;
        let call = Judged { host: *host, key, is_trial: *is_trial, at: (now, jitter) };
        self.hosts.judge(&mut states, &call, verdict);
        let is_suspect = matches!(class, Some(Class::Unavailable | Class::Lost | Class::Timeout));
        if is_suspect || verdict == Verdict::Lacks {
            self.hosts.suspects[self.host].notify_one();
        }
    }
}

/// The verdict about the host of a call. A doubtful failure may be the fault of the message: only the
/// answer of another host tells ([`Hosts::blame`]).
fn verdict(failure: Option<&Failure>) -> Verdict {
    match failure {
        Some(failure) if failure.is_not_served() => Verdict::Lacks,
        Some(Failure { class: Class::Ambiguous, .. }) => Verdict::Nothing,
        failure => Outcome::of(failure.map(|it| it.class)).map_or(Verdict::Nothing, Verdict::Of),
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.has_ended && self.late.is_some_and(|late| Instant::now() >= late) {
            self.ended(Some(&Failure::timeout()), 1, rand::random());
        }
        let mut states = self.hosts.lock();
        let state = &mut states[self.host];
        state.in_flight -= 1;
        if self.is_trial
            && !self.has_ended
            && let Some(ejection) = state.ejection(&self.key)
        {
            ejection.abandoned();
        }
        drop(states);
        self.hosts.ended.notify_waiters();
    }
}
