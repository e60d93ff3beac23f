//! A host of the simulation.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    time::Duration,
};

use outrigger_core::Moment;
use outrigger_dispatch::{BatchId, CallId, Failure};
use outrigger_resilience::{Class, Cut};
use rand::{RngExt as _, rngs::StdRng};

/// The behaviour of a host.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The calls that it works on at a time, from these moments on.
    pub(crate) slots: Vec<(Moment, usize)>,
    /// The calls that may wait; more are refused. `None`: any number.
    pub(crate) queue: Option<usize>,
    /// The time of a call, and of each row of it.
    pub(crate) service: (Duration, Duration),
    /// The share of the service time by which it varies.
    pub(crate) jitter: f64,
    /// The share of calls that it answers at once, and wrongly.
    pub(crate) lies: f64,
    /// The pause that it asks for when it refuses a call.
    pub(crate) retry_after: Option<Duration>,
    /// The most rows that it takes.
    pub(crate) most_rows: Option<u32>,
    /// Times at which it does not run: its connections break at the start.
    pub(crate) away: Vec<Range<Moment>>,
    /// True if a proxy answers in its place then.
    pub(crate) has_proxy: bool,
    /// The share of calls that it does not process, as a proxy says.
    pub(crate) flaps: f64,
    /// Times at which it answers nothing.
    pub(crate) hangs: Vec<Range<Moment>>,
    /// Times at which it fails all calls at once.
    pub(crate) broken: Vec<Range<Moment>>,
    /// Times at which it refuses all calls at once, as when credentials have expired.
    pub(crate) refuses: Vec<Range<Moment>>,
    /// The time that it needs to start again after a row has ended it.
    pub(crate) restart: Duration,
}

impl Plan {
    /// A host with 8 slots of 100 ms, within 10 %.
    pub(crate) fn steady() -> Self {
        Self {
            slots: vec![(Moment::default(), 8)],
            queue: None,
            service: (Duration::from_millis(100), Duration::ZERO),
            jitter: 0.1,
            lies: 0.0,
            retry_after: None,
            most_rows: None,
            away: Vec::new(),
            has_proxy: false,
            flaps: 0.0,
            hangs: Vec::new(),
            broken: Vec::new(),
            refuses: Vec::new(),
            restart: Duration::from_secs(2),
        }
    }

    fn slots(&self, now: Moment) -> usize {
        self.slots.iter().rev().find(|(from, _)| *from <= now).map_or(1, |(_, slots)| *slots)
    }
}

/// The faults of rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// Rows on which the model fails.
    pub(crate) poison: BTreeSet<(BatchId, u32)>,
    /// Rows that end their host.
    pub(crate) killers: BTreeSet<(BatchId, u32)>,
    /// Rows that are answered each time with a failure that may pass, and its class.
    pub(crate) refused: BTreeMap<(BatchId, u32), Class>,
}

impl Faults {
    fn has(rows: &BTreeSet<(BatchId, u32)>, call: &Sent) -> bool {
        let of = |row| (call.batch, row);
        rows.range(of(call.rows.start)..of(call.rows.end)).next().is_some()
    }

    /// True if no host can score the row.
    pub(crate) fn is_at_fault(&self, row: &(BatchId, u32)) -> bool {
        self.poison.contains(row) || self.killers.contains(row) || self.refused.contains_key(row)
    }

    /// The class with which a call is refused because of its rows.
    fn refusal(&self, call: &Sent) -> Option<Class> {
        let of = |row| (call.batch, row);
        let mut found = self.refused.range(of(call.rows.start)..of(call.rows.end));
        found.next().map(|(_, class)| *class)
    }
}

/// A call at a host.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) batch: BatchId,
    pub(crate) rows: Range<u32>,
}

/// The answer to a call; `None` is a success.
pub(crate) type Answer = Option<Failure>;

/// A host: the calls that it works on, and those that wait.
#[derive(Debug)]
pub(crate) struct SimHost {
    pub(crate) plan: Plan,
    calls: BTreeMap<CallId, Sent>,
    running: BTreeSet<CallId>,
    queue: VecDeque<CallId>,
    killed_until: Moment,
    /// The times at which a row has ended it.
    pub(crate) kills: u32,
}

/// The time from a call to a failure without work.
const AT_ONCE: Duration = Duration::from_millis(1);

fn failure(class: Class) -> Answer {
    Some(Failure::new(class, format!("{class:?}")))
}

fn passing(class: Class) -> Answer {
    failure(class).map(|failure| Failure { may_pass: true, ..failure })
}

fn is_within(times: &[Range<Moment>], now: Moment) -> bool {
    times.iter().any(|range| range.contains(&now))
}

impl SimHost {
    pub(crate) fn new(plan: Plan) -> Self {
        let (calls, running, queue) = (BTreeMap::new(), BTreeSet::new(), VecDeque::new());
        Self { plan, calls, running, queue, killed_until: Moment::default(), kills: 0 }
    }

    /// Takes a call. Returns the ends that are known: times, calls and answers.
    pub(crate) fn take(
        &mut self,
        id: CallId,
        sent: Sent,
        (now, rng, faults): (Moment, &mut StdRng, &Faults),
    ) -> Vec<(Moment, CallId, Answer)> {
        let soon = |class| vec![(now + AT_ONCE, id, failure(class))];
        if is_within(&self.plan.away, now) || now < self.killed_until {
            let away = if self.plan.has_proxy { passing } else { failure };
            return vec![(now + AT_ONCE, id, away(Class::Unavailable))];
        }
        if rng.random_bool(self.plan.flaps) {
            return vec![(now + AT_ONCE, id, passing(Class::Unavailable))];
        }
        if is_within(&self.plan.hangs, now) {
            return Vec::new();
        }
        if is_within(&self.plan.broken, now) || rng.random_bool(self.plan.lies) {
            return soon(Class::Ambiguous);
        }
        if is_within(&self.plan.refuses, now) {
            return soon(Class::Refused);
        }
        if let Some(most) = self.plan.most_rows.filter(|most| sent.rows.len() > *most as usize) {
            let cut = Cut { rows: Some(u64::from(most)), bytes: None };
            return soon(Class::TooLarge(cut));
        }
        let is_full = self.running.len() >= self.plan.slots(now);
        if is_full && self.plan.queue.is_some_and(|most| self.queue.len() >= most) {
            let mut refused = soon(Class::Overloaded);
            if let Some(failure) = &mut refused[0].2 {
                failure.retry_after = self.plan.retry_after;
            }
            return refused;
        }
        self.calls.insert(id, sent);
        self.queue.push_back(id);
        self.start((now, rng, faults))
    }

    /// Starts calls that wait, and returns their ends.
    fn start(
        &mut self,
        (now, rng, faults): (Moment, &mut StdRng, &Faults),
    ) -> Vec<(Moment, CallId, Answer)> {
        let mut ends = Vec::new();
        while self.running.len() < self.plan.slots(now) {
            let Some(id) = self.queue.pop_front() else { break };
            let Some(call) = self.calls.get(&id) else { continue };
            let (fixed, per_row) = self.plan.service;
            let usual = fixed + per_row * call.rows.len() as u32;
            let jitter = self.plan.jitter;
            let time = usual.mul_f64(1.0 + rng.random_range(-1.0..=1.0) * jitter);
            let is_poison = Faults::has(&faults.poison, call);
            let answer = if let Some(class) = faults.refusal(call) {
                passing(class)
            } else if Faults::has(&faults.killers, call) {
                failure(Class::Lost)
            } else if is_poison {
                failure(Class::Ambiguous)
            } else {
                None
            };
            self.running.insert(id);
            ends.push((now + time, id, answer));
        }
        ends
    }

    /// Ends a call. Returns the ends of calls that start in its place; `None` if it was not there.
    pub(crate) fn leave(
        &mut self,
        id: CallId,
        at: (Moment, &mut StdRng, &Faults),
    ) -> Option<Vec<(Moment, CallId, Answer)>> {
        self.calls.remove(&id)?;
        self.running.remove(&id);
        Some(self.start(at))
    }

    /// True if the host works on the call or lets it wait.
    pub(crate) fn has(&self, id: CallId) -> bool {
        self.calls.contains_key(&id)
    }

    /// Ends the host. Returns the calls that it had.
    pub(crate) fn die(&mut self) -> Vec<CallId> {
        self.running.clear();
        self.queue.clear();
        std::mem::take(&mut self.calls).into_keys().collect()
    }

    /// Ends the host by a row. Returns the calls that it had.
    pub(crate) fn kill(&mut self, now: Moment) -> Vec<CallId> {
        self.killed_until = now + self.plan.restart;
        self.kills += 1;
        self.die()
    }
}
