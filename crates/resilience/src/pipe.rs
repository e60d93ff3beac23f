//! A limit by the rate of a host and its round trips.

use std::{collections::VecDeque, time::Duration};

use outrigger_core::Moment;

use crate::{Limiter, Sample};

/// The calls beyond those that the host works on: a host that becomes faster is noticed by them.
const GAIN: f64 = 1.25;
/// The growth of the rate that justifies twice the limit at the start.
const GROWTH: f64 = 1.25;
/// The windows over which the largest rate counts.
const WINDOWS: usize = 4;
/// The fewest calls of a window.
const CALLS: usize = 8;
/// The windows between two measurements of the round trip without a queue.
const REFRESH: u32 = 64;
/// The fewest windows between them, when the limit or the round trips have changed.
const SOON: u32 = 8;
/// The share of the larger limit below which the smaller one is a change.
const CHANGE: f64 = 0.7;
/// The share of the limit that is in flight during such a measurement.
const DRAINED: f64 = 0.6;
/// The windows between two attempts at one more call, where the gain is less than one.
const UP: u32 = 8;

/// Bounds the calls in flight to those that keep a host busy without a queue: its largest rate times
/// its round trip without a queue, times a gain of 1.25 (the rule of BBR: Cardwell and others,
/// "BBR: Congestion-Based Congestion Control", ACM Queue 2016). It differs from BBR in this: rates
/// and round trips are of rows, since calls have different sizes. The rate is that of Little's law,
/// calls in flight by their round trip, because answers come in waves, and a count of them in a
/// short time is too high or too low. The round trip without a queue is the mean of a few calls and
/// not the least of many, because the least one of a service whose times vary says little; it is
/// measured with fewer calls in flight after 64 windows, or earlier when the limit has changed or
/// the round trips have grown.
///
/// The limit grows only where it was reached.
#[derive(Debug, Clone)]
pub struct Pipe {
    limit: usize,
    most: usize,
    phase: Phase,
    /// The usual rows of a call. Calls of less than half or more than twice of them do not measure
    /// the round trip.
    typical: f64,
    /// Calls in a row of another size.
    unusual: usize,
    /// The rates of the last windows in rows a second.
    rates: VecDeque<f64>,
    /// The round trip without a queue, in seconds for a row.
    unloaded: Option<f64>,
    window: Option<Window>,
    /// Windows since the last measurement of the round trip.
    age: u32,
    /// The limit after it.
    limit_then: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The limit doubles while the rate grows with it. The least round trip so far, and the rate.
    Start { unloaded: f64, rate: f64 },
    /// The limit follows the rate.
    Cruise,
    /// Few calls are in flight, to measure the round trip.
    Drain { limit: usize, since: Moment, calls: usize, seconds: f64 },
}

/// The answers of about two round trips.
#[derive(Debug, Clone, Copy)]
struct Window {
    since: Moment,
    limit: usize,
    calls: usize,
    /// The calls that were sent when the limit was reached.
    at_limit: usize,
    /// The usual calls, the sum of their round trips per row, and of the calls that were in flight
    /// when they were sent.
    usual: usize,
    seconds: f64,
    in_flight: usize,
}

impl Window {
    fn new(since: Moment, limit: usize) -> Self {
        Self { since, limit, calls: 0, at_limit: 0, usual: 0, seconds: 0.0, in_flight: 0 }
    }
}

impl Pipe {
    /// A limit that begins at `first` and never exceeds `most`.
    pub fn new(first: usize, most: usize) -> Self {
        let limit = first.clamp(1, most.max(1));
        Self {
            limit,
            most: most.max(1),
            phase: Phase::Start { unloaded: f64::INFINITY, rate: 0.0 },
            typical: 0.0,
            unusual: 0,
            rates: VecDeque::new(),
            unloaded: None,
            window: None,
            age: 0,
            limit_then: limit,
        }
    }

    /// True until the host's rate was measured.
    pub fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Start { .. })
    }

    /// True if a call of this size is usual. Other ones in a row begin a new measurement.
    fn is_usual(&mut self, rows: f64, now: Moment) -> bool {
        if self.typical == 0.0 {
            self.typical = rows;
        }
        let is_usual = rows >= self.typical / 2.0 && rows <= self.typical * 2.0;
        self.unusual = if is_usual { 0 } else { self.unusual + 1 };
        if is_usual {
            self.typical += (rows - self.typical) / 16.0;
        } else if self.unusual >= self.limit.max(CALLS) {
            self.typical = rows;
            self.unusual = 0;
            self.rates.clear();
            if !self.is_starting() {
                self.drain(now);
            }
        }
        is_usual
    }

    fn drain(&mut self, now: Moment) {
        let limit = ((self.limit as f64 * DRAINED) as usize).max(1);
        self.phase = Phase::Drain { limit, since: now, calls: 0, seconds: 0.0 };
        self.window = None;
    }

    /// Takes a call into account while few are in flight.
    fn drained(&mut self, sample: &Sample, per_row: Option<f64>) {
        let Phase::Drain { limit, since, calls, seconds } = &mut self.phase else { return };
        let (true, Some(per_row)) = (sample.sent >= *since && sample.in_flight <= *limit, per_row)
        else {
            return;
        };
        *calls += 1;
        *seconds += per_row;
        if *calls < (*limit).max(CALLS) {
            return;
        }
        let mean = *seconds / *calls as f64;
        let before = self.unloaded.replace(mean);
        self.phase = Phase::Cruise;
        self.age = 0;
        self.follow();
        self.limit_then = self.limit;
        // The queue was not empty yet if the round trip has become shorter.
        if before.is_some_and(|before| mean < before * 0.9) && self.limit > 1 {
            self.drain(sample.ended);
        }
    }

    /// Adds a call to the window, and returns the window if it is whole.
    fn collect(&mut self, sample: &Sample, per_row: Option<f64>) -> Option<Window> {
        let limit = self.limit;
        let Some(window) = &mut self.window else {
            self.window = Some(Window::new(sample.ended, limit));
            return None;
        };
        window.calls += 1;
        window.at_limit += usize::from(sample.in_flight >= window.limit);
        if let Some(per_row) = per_row {
            window.usual += 1;
            window.seconds += per_row;
            window.in_flight += sample.in_flight;
        }
        let is_whole = sample.sent >= window.since && window.calls >= CALLS.max(2 * window.limit);
        if is_whole { self.window.take() } else { None }
    }

    fn window_ended(&mut self, window: &Window, ended: Moment) {
        if window.usual == 0 {
            return;
        }
        let is_at_limit = 2 * window.at_limit >= window.calls;
        let rate = window.in_flight as f64 / window.seconds;
        let per_row = window.seconds / window.usual as f64;
        self.record(rate, is_at_limit);
        if let Phase::Start { unloaded, rate: before } = self.phase {
            let unloaded = unloaded.min(per_row);
            self.phase = Phase::Start { unloaded, rate: before.max(rate) };
            match (is_at_limit, rate >= before * GROWTH) {
                (false, _) => {}
                (true, true) => self.limit = (2 * self.limit).min(self.most),
                (true, false) => {
                    self.unloaded = Some(unloaded);
                    self.phase = Phase::Cruise;
                    self.follow();
                    self.drain(ended);
                }
            }
            return;
        }
        if !is_at_limit {
            return;
        }
        self.age += 1;
        self.follow();
        let (limit, then) = (self.limit as f64, self.limit_then as f64);
        let has_changed = limit < CHANGE * then || then < CHANGE * limit;
        let is_slow = self.unloaded.is_some_and(|unloaded| per_row > 2.0 * unloaded);
        if self.age >= REFRESH || (self.age >= SOON && (has_changed || is_slow)) {
            self.drain(ended);
        }
    }

    /// Records the rate of a window. One in which the limit was not reached shows no more than a
    /// lower bound of the host's rate.
    fn record(&mut self, rate: f64, is_at_limit: bool) {
        let most = self.rates.iter().copied().fold(0.0, f64::max);
        if is_at_limit || rate > most {
            if self.rates.len() >= WINDOWS {
                self.rates.pop_front();
            }
            self.rates.push_back(rate);
        }
    }

    /// Sets the limit from the rate and the round trip.
    fn follow(&mut self) {
        let rate = self.rates.iter().copied().fold(0.0, f64::max);
        let Some(unloaded) = self.unloaded.filter(|_| rate > 0.0) else { return };
        let busy = rate * unloaded;
        let mut limit = (GAIN * busy) as usize;
        if self.age.is_multiple_of(UP) {
            limit = limit.max(busy.round() as usize + 1);
        }
        self.limit = limit.clamp(1, self.most);
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64().max(1e-9)
}

impl Limiter for Pipe {
    fn limit(&self) -> usize {
        match self.phase {
            Phase::Drain { limit, .. } => limit,
            _ => self.limit,
        }
    }

    fn ended(&mut self, sample: &Sample) {
        if sample.failure.is_some() {
            return;
        }
        let rows = sample.rows.max(1) as f64;
        let is_usual = self.is_usual(rows, sample.ended);
        let per_row = is_usual.then(|| seconds(sample.ended.since(sample.sent)) / rows);
        if matches!(self.phase, Phase::Drain { .. }) {
            self.drained(sample, per_row);
        } else if let Some(window) = self.collect(sample, per_row) {
            self.window_ended(&window, sample.ended);
        }
    }
}

#[cfg(test)]
mod tests;
