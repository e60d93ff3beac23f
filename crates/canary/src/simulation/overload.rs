//! A trial on an engine that both arms share: a canary that costs much slows live down too.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use outrigger_core::{Arm, Moment};

use super::{Overloaded, Random, Traffic, engine::Engine, seconds};
use crate::{
    Cap, Conclusion, Config, Mode, Observation, OnStarved, Outcome, Progress, Ramp, Settings,
    Share, Step, Trial, WarmUp,
};

/// The interval between two judgements.
const TICK: Duration = Duration::from_secs(1);
/// The time after the conclusion for which callers are still observed.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// Requests for an engine with some servers. The latency of the traffic is the time that a
/// request takes on a server; its wait for an idle one comes on top.
#[derive(Debug, Clone)]
pub struct Overload {
    /// The requests of both arms.
    pub traffic: Traffic,
    /// Requests a second.
    pub rate: f64,
    /// The number of servers, for example cores.
    pub servers: usize,
    /// The time after which callers give up. The canary has half of it.
    pub deadline: Duration,
    /// The number of requests on the canary after which the simulation ends without a
    /// conclusion.
    pub most: u64,
}

/// A request in progress.
#[derive(Debug)]
struct Request {
    arrived: Duration,
    arm: Arm,
    /// The canary's share; `None` before the split.
    share: Option<Share>,
    /// True if the comparison counts it.
    is_counted: bool,
    attempt: Attempt,
    /// The outcome if it is answered in time.
    outcome: Outcome,
}

/// The attempt at an answer that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    /// Live's, in place of the canary.
    StandIn,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Arrival,
    Tick,
    /// The engine is done with an attempt at this request.
    Done(u64, Attempt),
    /// The deadline of that attempt has passed.
    Late(u64, Attempt),
}

/// A simulation in progress.
struct Course {
    setup: Overload,
    random: Random,
    engine: Engine<Event>,
    trial: Trial,
    cap: Cap,
    requests: BTreeMap<u64, Request>,
    last: u64,
    latencies: Latencies,
    split_at: Option<Duration>,
    ends_at: Option<Duration>,
    report: Overloaded,
}

/// Latencies of requests on live, in seconds; those of failures are infinite.
#[derive(Debug, Default)]
struct Latencies {
    before: Vec<f64>,
    /// Twice the 99th percentile before the split.
    slow: f64,
    /// Those of the current second.
    second: Vec<f64>,
}

impl Overload {
    /// Simulates a trial by these settings of the judge, in which the canary has the share
    /// of the traffic.
    pub fn run(self, judge: Config, seed: u64) -> Overloaded {
        let mut course = Course::new(self, judge, seed);
        course.engine.at(Duration::ZERO, Event::Arrival);
        course.engine.at(TICK, Event::Tick);
        while let Some((now, event)) = course.engine.next() {
            if course.ends_at.is_some_and(|end| now >= end) {
                break;
            }
            course.happens(now, event);
        }
        course.report
    }
}

/// The settings of a trial with a constant share.
fn settings(judge: Config, share: Share) -> Settings {
    Settings {
        judge,
        ramp: Ramp::Steps(vec![Step { share, time: Duration::ZERO, requests: 0 }]),
        warm_up: WarmUp { requests: 1000, time: Duration::from_secs(60) },
        mode: Mode::Registry,
        on_starved: OnStarved::Rollback,
        shadow: 0.0,
        skew: None,
    }
}

impl Course {
    fn new(setup: Overload, judge: Config, seed: u64) -> Self {
        let settings = Arc::new(settings(judge, setup.traffic.share));
        Self {
            random: Random::new(seed),
            engine: Engine::new(setup.servers),
            trial: Trial::new(settings, Progress::default(), seed, Moment::default()),
            cap: Cap::default(),
            requests: BTreeMap::new(),
            last: 0,
            latencies: Latencies::default(),
            split_at: None,
            ends_at: None,
            report: Overloaded::default(),
            setup,
        }
    }

    fn happens(&mut self, now: Duration, event: Event) {
        match event {
            Event::Arrival => self.arrives(now),
            Event::Tick => self.tick(now),
            Event::Done(number, attempt) => self.done(now, number, attempt),
            Event::Late(number, attempt) => self.late(now, number, attempt),
        }
    }

    fn arrives(&mut self, now: Duration) {
        let next = seconds(-self.random.uniform().ln() / self.setup.rate);
        self.engine.at(now.saturating_add(next), Event::Arrival);
        let share = self.trial.share().filter(|_| self.report.conclusion.is_none());
        let (arm, is_counted) = self.choose(share, Moment::at(now));
        self.report.callers += u64::from(self.split_at.is_some());
        let attempt = Attempt::First;
        let request =
            Request { arrived: now, arm, share, is_counted, attempt, outcome: Outcome::Empty };
        self.last += 1;
        self.requests.insert(self.last, request);
        self.submit(now, self.last);
    }

    /// The arm of a request, and true if the comparison counts it: as in the server.
    fn choose(&mut self, share: Option<Share>, now: Moment) -> (Arm, bool) {
        let Some(share) = share else { return (Arm::Live, true) };
        if !self.random.happens(share.probability()) {
            return (Arm::Live, self.cap.has_room(|| now));
        }
        if self.cap.begin(now) {
            return (Arm::Canary, true);
        }
        self.report.left_to_live += 1;
        (Arm::Live, false)
    }

    /// Sends the attempt that is due to the engine.
    fn submit(&mut self, now: Duration, number: u64) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        let (arm, deadline) = match (request.attempt, request.arm) {
            (Attempt::First, Arm::Canary) => (Arm::Canary, self.setup.deadline / 2),
            _ => (Arm::Live, self.setup.deadline),
        };
        let is_split = self.split_at.is_some();
        let Observation { latency, outcome, .. } = self.setup.traffic.request_of(arm, is_split);
        request.outcome = outcome;
        let (end, attempt) = (request.arrived.saturating_add(deadline), request.attempt);
        self.engine.at(end, Event::Late(number, attempt));
        let latency = latency.expect("that of a simulated request");
        self.engine.submit(now, latency, Event::Done(number, attempt));
    }

    fn done(&mut self, now: Duration, number: u64, attempt: Attempt) {
        let Some(request) = self.requests.get(&number).filter(|it| it.attempt == attempt) else {
            return;
        };
        let (latency, outcome) = (now - request.arrived, request.outcome);
        match (request.arm, attempt) {
            (Arm::Canary, Attempt::First) => {
                self.cap.end(latency);
                self.observe(number, latency, outcome, now);
                if outcome == Outcome::Failed {
                    return self.stand_in(now, number);
                }
            }
            (Arm::Canary, Attempt::StandIn) => {}
            _ if latency > self.setup.deadline / 2 => {
                self.observe(number, latency, Outcome::Failed, now);
            }
            _ => self.observe(number, latency, outcome, now),
        }
        self.answered(number, outcome != Outcome::Failed);
    }

    fn late(&mut self, now: Duration, number: u64, attempt: Attempt) {
        let Some(request) = self.requests.get(&number).filter(|it| it.attempt == attempt) else {
            return;
        };
        let (latency, arm) = (now - request.arrived, request.arm);
        match (arm, attempt) {
            (Arm::Canary, Attempt::First) => {
                self.cap.abandon(latency, Moment::at(now));
                self.observe(number, latency, Outcome::Failed, now);
                return self.stand_in(now, number);
            }
            (Arm::Canary, Attempt::StandIn) => {}
            _ => self.observe(number, latency, Outcome::Failed, now),
        }
        self.answered(number, false);
    }

    /// Lets live answer in place of the canary.
    fn stand_in(&mut self, now: Duration, number: u64) {
        if let Some(request) = self.requests.get_mut(&number) {
            request.attempt = Attempt::StandIn;
            self.submit(now, number);
        }
    }

    /// Records the outcome of a request for its arm.
    fn observe(&mut self, number: u64, latency: Duration, outcome: Outcome, now: Duration) {
        let Some(request) = self.requests.get(&number) else { return };
        let observation = Observation { arm: request.arm, latency: Some(latency), outcome };
        if request.arm == Arm::Live {
            let failed = outcome == Outcome::Failed;
            let latency = if failed { f64::INFINITY } else { latency.as_secs_f64() };
            self.latencies.second.push(latency);
        }
        match request.is_counted {
            true => self.trial.observe(request.share, &observation, Moment::at(now)),
            false => self.trial.see(&observation),
        }
    }

    /// Ends a request.
    fn answered(&mut self, number: u64, is_answered: bool) {
        self.requests.remove(&number);
        self.report.failed += u64::from(!is_answered && self.split_at.is_some());
    }

    fn tick(&mut self, now: Duration) {
        self.engine.at(now + TICK, Event::Tick);
        match self.split_at {
            None => self.latencies.before.append(&mut self.latencies.second),
            Some(_) => self.report.slow_seconds += u64::from(self.latencies.end_second()),
        }
        if self.report.conclusion.is_some() {
            return;
        }
        let conclusion = self.trial.tick(Moment::at(now));
        self.cap.limit(self.trial.most_in_flight(self.cap.took()));
        if self.split_at.is_none() && self.trial.share().is_some() {
            self.split_at = Some(now);
            self.latencies.end_warm_up();
        }
        let elapsed = now - self.split_at.unwrap_or(now);
        self.report.elapsed = elapsed;
        self.report.pauses = self.trial.probes().map_or(0, |probes| probes.pauses);
        self.report.canary = self.trial.statistics().map_or(0, |it| it.requests().1);
        if let Some(conclusion) = conclusion {
            self.conclude(conclusion);
            self.ends_at = Some(now + AFTERWARDS);
        } else if self.report.canary >= self.setup.most {
            self.ends_at = Some(now);
        }
    }

    fn conclude(&mut self, conclusion: Conclusion) {
        self.report.conclusion = Some(conclusion);
        self.report.reason = self.trial.reason(conclusion.cause());
    }
}

impl Latencies {
    fn end_warm_up(&mut self) {
        self.before.sort_unstable_by(f64::total_cmp);
        let rank = (0.99 * self.before.len() as f64) as usize;
        self.slow = 2.0 * self.before.get(rank).copied().unwrap_or(f64::INFINITY);
    }

    /// Returns true if more than one in a hundred of the second's requests were slow.
    fn end_second(&mut self) -> bool {
        let slow = self.second.iter().filter(|latency| **latency > self.slow).count();
        let is_slow = slow * 100 > self.second.len();
        self.second.clear();
        is_slow
    }
}
