//! A deterministic simulation of a job: hosts in virtual time, and a ledger that holds the fate of
//! each row. It panics when a row is settled twice, or when nothing can happen any more while rows
//! are not settled.

#![allow(dead_code, reason = "each test and the example use a part")]

pub(crate) mod figures;
mod host;
pub(crate) mod random;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use outrigger_core::Moment;
use outrigger_dispatch::{
    BatchId, Call, CallId, Dead, Dispatcher, End, Failure, HostId, Limits, Purpose, Settings,
    Settled, Stop,
};
use outrigger_resilience::Class;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use self::host::{Answer, Sent, SimHost};
pub(crate) use self::host::{Faults, Plan};

pub(crate) fn at(millis: u64) -> Moment {
    Moment::at(Duration::from_millis(millis))
}

/// A job: its hosts, its batches, and the changes while it runs.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) hosts: Vec<Plan>,
    /// The rows of each batch.
    pub(crate) batches: Vec<u32>,
    pub(crate) faults: Faults,
    pub(crate) settings: Settings,
    /// The time limit of a call.
    pub(crate) timeout: Duration,
    /// The end of the simulation, if it is before that of the job.
    pub(crate) until: Option<Moment>,
    /// The share of successes whose answer is too large for the caller.
    pub(crate) oversized: f64,
    pub(crate) changes: Vec<(Moment, Change)>,
    /// True if the caller has a row that was scored before.
    pub(crate) has_scored_row: bool,
    /// The hosts that rows of batches have ended before.
    pub(crate) ended: BTreeMap<BatchId, Vec<HostId>>,
}

/// A change while a job runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Hosts(Vec<u32>),
    Limits(Limits),
    Pause,
    Resume,
    /// Rows of later batches are not sent.
    Hold(Option<BatchId>),
    /// The connections to a host break.
    Die(usize),
}

impl Job {
    pub(crate) fn new(hosts: Vec<Plan>, batches: Vec<u32>) -> Self {
        let mut changes = Vec::new();
        for (index, plan) in hosts.iter().enumerate() {
            changes.extend(plan.away.iter().map(|range| (range.start, Change::Die(index))));
        }
        Self {
            hosts,
            batches,
            faults: Faults::default(),
            settings: Settings::default(),
            timeout: Duration::from_secs(5),
            until: None,
            oversized: 0.0,
            changes,
            has_scored_row: false,
            ended: BTreeMap::new(),
        }
    }

    pub(crate) fn run(&self, seed: u64) -> Report {
        Simulation::new(self, seed).run()
    }
}

/// The course of a job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    /// The time of the last event.
    pub(crate) end: Moment,
    pub(crate) stop: Option<Stop>,
    pub(crate) dead: Vec<Dead>,
    /// Rows scored.
    pub(crate) rows: u64,
    /// The calls by host, checks aside.
    pub(crate) attempts: BTreeMap<HostId, u64>,
    /// All calls that were sent.
    pub(crate) calls: Vec<Call>,
    /// Calls that were refused because of load.
    pub(crate) refused: u64,
    /// The round trips of successes in milliseconds, as they ended.
    pub(crate) round_trips: Vec<f64>,
    /// The times at which rows have ended each host.
    pub(crate) kills: Vec<u32>,
    /// The limit of the first host after each call.
    pub(crate) limits: Vec<(Moment, usize)>,
}

impl Report {
    /// The calls with rows of a batch, checks aside.
    pub(crate) fn calls_of(&self, batch: BatchId) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(move |c| c.batch == batch && c.purpose != Purpose::Check)
    }

    pub(crate) fn median_round_trip(&self) -> f64 {
        let mut times = self.round_trips.clone();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    End(CallId, Answer),
    Timeout(CallId),
    Change(usize),
}

struct Simulation<'a> {
    job: &'a Job,
    dispatcher: Dispatcher,
    hosts: Vec<SimHost>,
    events: BinaryHeap<Reverse<(Moment, u64)>>,
    details: BTreeMap<u64, Event>,
    scheduled: u64,
    flights: BTreeMap<CallId, (usize, Moment, Purpose)>,
    /// The fate of each row: none, scored, dead.
    ledger: BTreeMap<BatchId, Vec<Option<bool>>>,
    added: usize,
    unsettled: u64,
    rng: StdRng,
    now: Moment,
    report: Report,
}

impl<'a> Simulation<'a> {
    fn new(job: &'a Job, seed: u64) -> Self {
        let hosts = (0..job.hosts.len() as u32).map(HostId);
        let start = (seed, Moment::default());
        let mut simulation = Self {
            job,
            dispatcher: Dispatcher::new(job.settings.clone(), hosts, start),
            hosts: job.hosts.iter().cloned().map(SimHost::new).collect(),
            events: BinaryHeap::new(),
            details: BTreeMap::new(),
            scheduled: 0,
            flights: BTreeMap::new(),
            ledger: BTreeMap::new(),
            added: 0,
            unsettled: job.batches.iter().map(|rows| u64::from(*rows)).sum(),
            rng: StdRng::seed_from_u64(seed),
            now: Moment::default(),
            report: Report::default(),
        };
        if job.has_scored_row {
            simulation.dispatcher.has_scored_row();
        }
        for (index, (at, _)) in job.changes.iter().enumerate() {
            simulation.schedule(*at, Event::Change(index));
        }
        simulation
    }

    fn schedule(&mut self, at: Moment, event: Event) {
        self.scheduled += 1;
        self.details.insert(self.scheduled, event);
        self.events.push(Reverse((at, self.scheduled)));
    }

    fn run(mut self) -> Report {
        while self.unsettled > 0 && self.job.until.is_none_or(|until| self.now < until) {
            self.fill();
            if self.dispatcher.stopped().is_some() {
                break;
            }
            let event = self.events.peek().map(|Reverse((at, _))| *at);
            let woken = self.dispatcher.wake_at(self.now);
            let Some(next) = [event, woken].into_iter().flatten().min() else {
                panic!("nothing can happen: {:#?}", self.dispatcher)
            };
            self.now = next;
            while let Some(Reverse((at, number))) = self.events.peek().copied() {
                if at > self.now {
                    break;
                }
                self.events.pop();
                if let Some(event) = self.details.remove(&number) {
                    self.happen(event);
                }
            }
        }
        self.report.end = self.now;
        self.report.stop = self.dispatcher.stopped();
        self.report.kills = self.hosts.iter().map(|host| host.kills).collect();
        if self.unsettled == 0 {
            assert!(self.dispatcher.is_idle(), "{:#?}", self.dispatcher.snapshot(self.now));
        }
        self.report
    }

    /// Adds batches while there is room, and sends calls while there are any.
    fn fill(&mut self) {
        loop {
            while self.added < self.job.batches.len() && self.dispatcher.has_room() {
                let (batch, rows) = (BatchId(self.added as u64), self.job.batches[self.added]);
                self.ledger.insert(batch, vec![None; rows as usize]);
                self.dispatcher.add(batch, rows);
                if let Some(hosts) = self.job.ended.get(&batch) {
                    self.dispatcher.may_have_ended(batch, hosts);
                }
                self.added += 1;
            }
            let Some(call) = self.dispatcher.next(self.now) else { break };
            self.send(call);
        }
    }

    fn send(&mut self, call: Call) {
        let index = call.host.0 as usize;
        self.flights.insert(call.id, (index, self.now, call.purpose));
        if call.purpose != Purpose::Check {
            *self.report.attempts.entry(call.host).or_default() += 1;
            let fates = &self.ledger[&call.batch];
            let is_new = call.rows.clone().all(|row| fates[row as usize].is_none());
            assert!(is_new, "settled rows are sent again: {call:?}");
        }
        let sent = Sent { batch: call.batch, rows: call.rows.clone() };
        let at = (self.now, &mut self.rng, &self.job.faults);
        let ends = self.hosts[index].take(call.id, sent, at);
        self.schedule(self.now + self.job.timeout, Event::Timeout(call.id));
        self.schedule_ends(ends);
        self.report.calls.push(call);
    }

    fn schedule_ends(&mut self, ends: Vec<(Moment, CallId, Answer)>) {
        for (at, id, answer) in ends {
            self.schedule(at, Event::End(id, answer));
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::End(id, answer) => {
                let Some((index, ..)) = self.flights.get(&id).copied() else { return };
                let is_kill = answer.as_ref().is_some_and(|f| f.class == Class::Lost);
                if is_kill && self.hosts[index].has(id) {
                    let calls = self.hosts[index].kill(self.now);
                    calls.into_iter().for_each(|id| self.lost(id));
                } else {
                    self.end(id, answer);
                }
            }
            Event::Timeout(id) => {
                self.end(id, Some(Failure::new(Class::Timeout, "no answer in time")));
            }
            Event::Change(index) => self.change(index),
        }
    }

    fn lost(&mut self, id: CallId) {
        self.end(id, Some(Failure::new(Class::Lost, "the connection broke")));
    }

    fn change(&mut self, index: usize) {
        match self.job.changes[index].1.clone() {
            Change::Hosts(hosts) => {
                let hosts: Vec<_> = hosts.into_iter().map(HostId).collect();
                let settled = self.dispatcher.set_hosts(&hosts, self.now);
                self.settle(settled);
            }
            Change::Limits(limits) => self.dispatcher.set_limits(limits),
            Change::Pause => self.dispatcher.pause(),
            Change::Resume => self.dispatcher.resume(),
            Change::Hold(last) => self.dispatcher.hold_after(last),
            Change::Die(host) => {
                let calls = self.hosts[host].die();
                calls.into_iter().for_each(|id| self.lost(id));
            }
        }
    }

    /// Ends a call, if it has not ended before.
    fn end(&mut self, id: CallId, answer: Answer) {
        let Some((index, sent, purpose)) = self.flights.remove(&id) else { return };
        self.leave(index, id);
        let end = match answer {
            None if self.is_oversized() => End::Oversized,
            None => End::Scored,
            Some(failure) => End::Failed(failure),
        };
        match &end {
            End::Scored if purpose != Purpose::Check => {
                self.report.round_trips.push(self.now.since(sent).as_secs_f64() * 1e3);
            }
            End::Failed(failure) if failure.class == Class::Overloaded => self.report.refused += 1,
            _ => {}
        }
        let settled = self.dispatcher.ended(id, end, self.now);
        let status = self.dispatcher.snapshot(self.now);
        self.report.limits.extend(status.hosts.first().map(|host| (self.now, host.limit)));
        self.settle(settled);
    }

    fn is_oversized(&mut self) -> bool {
        let share = self.job.oversized;
        share > 0.0 && self.rng.random_bool(share)
    }

    fn leave(&mut self, index: usize, id: CallId) {
        let at = (self.now, &mut self.rng, &self.job.faults);
        if let Some(ends) = self.hosts[index].leave(id, at) {
            self.schedule_ends(ends);
        }
    }

    fn settle(&mut self, settled: Settled) {
        for id in settled.cancel {
            let (index, ..) = self.flights.remove(&id).expect("a call in flight is cancelled");
            self.leave(index, id);
        }
        if let Some(scored) = settled.scored {
            self.report.rows += scored.rows.len() as u64;
            for row in scored.rows {
                self.decide(scored.batch, row, true);
            }
            self.check_last(scored.batch, scored.is_last);
        }
        for dead in settled.dead {
            self.decide(dead.batch, dead.row, false);
            self.check_last(dead.batch, dead.is_last);
            self.report.dead.push(dead);
        }
    }

    fn check_last(&self, batch: BatchId, is_last: bool) {
        assert_eq!(self.ledger[&batch].iter().all(Option::is_some), is_last, "{batch:?}");
    }

    fn decide(&mut self, batch: BatchId, row: u32, is_scored: bool) {
        let fate = &mut self.ledger.get_mut(&batch).expect("a batch")[row as usize];
        assert_eq!(*fate, None, "row {row} of {batch:?} is settled twice");
        *fate = Some(is_scored);
        self.unsettled -= 1;
    }
}
