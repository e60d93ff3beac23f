//! The state of one host.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use outrigger_core::Moment;
use outrigger_resilience::{Adaptive, Class, Ejection, Limiter as _, Place, Sample};

use crate::{
    call::{CallId, HostId},
    pace::Pace,
    piece::PieceId,
    rate::{Rate, RateCap},
    settings::{Limits, Settings},
};

/// One host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) id: HostId,
    /// True if the host gets calls. One that was removed stays until its calls have ended.
    pub(crate) is_present: bool,
    limiter: Adaptive,
    pub(crate) breaker: Ejection,
    pub(crate) pace: Pace,
    pub(crate) in_flight: usize,
    /// Places of calls that have failed: each is free again at the time at which a success would
    /// have ended, so that a host that fails fast gets no more calls than one that works.
    held: BinaryHeap<Reverse<Moment>>,
    /// The host has asked for no calls until this moment.
    pub(crate) quiet: Moment,
    /// The caller has asked for no calls.
    pub(crate) hold: Hold,
    cap: RateCap,
    /// The call that tests the host.
    pub(crate) check: Option<CallId>,
    /// Calls in flight whose rows may end the host; at most one.
    pub(crate) fragile: usize,
    /// Pieces with a failure here that is not judged yet.
    pub(crate) open: Vec<PieceId>,
    /// Pieces whose last failure here may pass, since the last success.
    pub(crate) doubts: Vec<PieceId>,
    /// Failures that are not judged since the last success.
    pub(crate) in_a_row: u32,
    /// True if it has failed a test since the last success.
    pub(crate) is_faulty: bool,
    /// The most rows of a call, as the host's refusals have named it.
    pub(crate) most_rows: Option<u32>,
    /// The time at which the last success ended.
    pub(crate) succeeded: Option<Moment>,
    /// True if the last call was answered, and with a failure.
    pub(crate) is_failing: bool,
    /// The number of the last call, so that equal hosts take turns.
    pub(crate) used: u64,
    pub(crate) totals: Totals,
    pub(crate) rate: Rate,
}

/// The calls of one host so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// The calls sent.
    pub calls: u64,
    /// The calls that have failed.
    pub failed: u64,
    /// The calls that have failed because the host had too much work.
    pub refused: u64,
    /// The rows that the host has scored.
    pub rows: u64,
}

/// The end of a call, for its host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) sent: Moment,
    pub(crate) now: Moment,
    pub(crate) rows: u32,
    /// The places that were taken when the call was sent, with its own.
    pub(crate) taken: usize,
    pub(crate) failure: Option<Class>,
}

/// The limit of the pipe and of the refusals; the user's is applied on top.
const MOST: usize = 1 << 16;

impl Host {
    pub(crate) fn new(id: HostId, settings: &Settings, now: Moment) -> Self {
        Self {
            id,
            is_present: true,
            limiter: Adaptive::new(settings.first_in_flight, MOST),
            breaker: Ejection::new(settings.breaker),
            pace: Pace::new(),
            in_flight: 0,
            held: BinaryHeap::new(),
            quiet: Moment::default(),
            hold: Hold::None,
            cap: RateCap::new(now),
            check: None,
            fragile: 0,
            open: Vec::new(),
            doubts: Vec::new(),
            in_a_row: 0,
            is_faulty: false,
            most_rows: None,
            succeeded: None,
            is_failing: false,
            used: 0,
            totals: Totals::default(),
            rate: Rate::new(now),
        }
    }

    /// The places that are taken: by calls in flight, and by failed calls until a success would have
    /// ended.
    pub(crate) fn taken(&self) -> usize {
        self.in_flight + self.held.len()
    }

    /// Gives places free whose time has come.
    pub(crate) fn release(&mut self, now: Moment) {
        while self.held.peek().is_some_and(|Reverse(until)| *until <= now) {
            self.held.pop();
        }
    }

    pub(crate) fn limit(&self, limits: &Limits) -> usize {
        self.limiter.limit().min(limits.max_in_flight.max(1))
    }

    /// The reason of the limit.
    pub(crate) fn bound(&self, limits: &Limits, now: Moment) -> Bound {
        match self.limiter.limit() {
            _ if self.hold.holds(now) => Bound::Quota,
            _ if self.cap.wait(limits.rows_per_second, now).is_some() => Bound::User,
            limit if limit > limits.max_in_flight => Bound::User,
            _ if self.limiter.is_refused() => Bound::Refusals,
            _ if self.limiter.is_starting() => Bound::Start,
            _ => Bound::RoundTrips,
        }
    }

    /// True if the host takes one more call now. `late` of its calls take much longer than usual:
    /// they say nothing about the others, and take places of the user's maximum only.
    pub(crate) fn is_free(&self, limits: &Limits, late: usize, now: Moment) -> bool {
        let is_asked = now < self.quiet || self.hold.holds(now);
        let is_quiet = is_asked || self.cap.wait(limits.rows_per_second, now).is_some();
        match self.breaker.place(now) {
            Place::Out(_) => false,
            Place::Trial => !is_quiet,
            Place::In => !is_quiet && self.has_place(limits, late),
        }
    }

    fn has_place(&self, limits: &Limits, late: usize) -> bool {
        let taken = self.taken();
        taken < limits.max_in_flight.max(1) && taken.saturating_sub(late) < self.limit(limits)
    }

    /// True if failures of the host are not judged, or may count.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.open.is_empty() || !self.doubts.is_empty()
    }

    /// True if the host is not withdrawn.
    pub(crate) fn is_in(&self, now: Moment) -> bool {
        self.breaker.place(now) == Place::In
    }

    /// The next time at which the host may take a call without one of its calls ending before.
    pub(crate) fn wakes_at(&self, limits: &Limits, now: Moment) -> Option<Moment> {
        let places = match self.breaker.place(now) {
            Place::Out(until) if until > now => Some(until),
            // The end of the trial decides.
            Place::Out(_) => return None,
            Place::Trial => None,
            Place::In => self.held.peek().map(|Reverse(until)| *until),
        };
        let quiet = (self.quiet > now).then_some(self.quiet);
        [places, quiet, self.hold.end(now), self.cap.wait(limits.rows_per_second, now)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes a place for a call with these rows.
    pub(crate) fn sent(&mut self, rows: u32, (used, now): (u64, Moment), limits: &Limits) -> usize {
        self.in_flight += 1;
        self.used = used;
        self.totals.calls += 1;
        self.cap.take(rows.into(), limits.rows_per_second, now);
        self.taken()
    }

    /// Takes the end of a call into account. A failed call keeps its place for `hold`.
    pub(crate) fn ended(&mut self, ended: &Ended, hold: Duration) {
        let Ended { sent, now, rows, taken, failure } = *ended;
        self.in_flight -= 1;
        let sample = Sample { sent, ended: now, rows: u64::from(rows), in_flight: taken, failure };
        self.limiter.ended(&sample);
        match failure {
            None => {
                self.pace.record(rows, now.since(sent));
                self.succeeded = Some(now);
                self.is_failing = false;
            }
            Some(class) => {
                self.totals.failed += 1;
                self.totals.refused += u64::from(class == Class::Overloaded);
                self.is_failing = is_answer(class);
                let until = sent + hold;
                if until > now {
                    self.held.push(Reverse(until));
                }
            }
        }
    }

    /// Obeys the pause that the host asks for.
    pub(crate) fn be_quiet(&mut self, pause: Duration, now: Moment) {
        self.quiet = self.quiet.max(now + pause);
    }

    /// Gives up the place of a call that said nothing about the host.
    pub(crate) fn forget(&mut self, is_probe: bool) {
        self.in_flight -= 1;
        if is_probe {
            self.breaker.abandoned();
        }
    }
}

/// True if the host has answered, and with a failure.
pub(crate) fn is_answer(class: Class) -> bool {
    matches!(class, Class::Ambiguous | Class::Refused | Class::TooLarge(_))
}

/// A bound of the caller beside its [`Limits`], as for a budget of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Hold {
    /// The host takes calls.
    #[default]
    None,
    /// It takes none before this moment.
    Until(Moment),
    /// It takes none before the hold is set again.
    Closed,
}

impl Hold {
    fn holds(self, now: Moment) -> bool {
        match self {
            Self::None => false,
            Self::Until(end) => now < end,
            Self::Closed => true,
        }
    }

    /// The moment at which it ends by itself, if that is still to come.
    fn end(self, now: Moment) -> Option<Moment> {
        match self {
            Self::Until(end) if end > now => Some(end),
            _ => None,
        }
    }
}

/// The reason of a host's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The host's rate was not measured yet.
    Start,
    /// More calls in flight would wait at the host.
    RoundTrips,
    /// The host has refused calls.
    Refusals,
    /// The maximum of calls in flight or of rows a second that the user has set.
    User,
    /// The caller's [`Hold`]: there are no calls at all for the moment.
    Quota,
}

impl Bound {
    /// The name in the status and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::RoundTrips => "round_trips",
            Self::Refusals => "refusals",
            Self::User => "user",
            Self::Quota => "quota",
        }
    }
}
