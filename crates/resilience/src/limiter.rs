//! Limits of the calls that a host has in flight.

use std::fmt;

use outrigger_core::Moment;

use crate::Class;

/// Bounds the calls that one host has in flight, from the ends of earlier ones.
pub trait Limiter: fmt::Debug + Send {
    /// The most calls in flight; at least one.
    fn limit(&self) -> usize;

    /// Takes the end of a call into account.
    fn ended(&mut self, sample: &Sample);
}

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The time at which it was sent.
    pub sent: Moment,
    /// The time at which it ended.
    pub ended: Moment,
    /// The rows of its message.
    pub rows: u64,
    /// The calls that the host had in flight when it was sent, with this one.
    pub in_flight: usize,
    /// The class of its failure; `None` for a success.
    pub failure: Option<Class>,
}

/// Additive increase, multiplicative decrease: one more call for each round of answers at the limit,
/// and 30 % less for an overload, at most once a round trip (the rule of TCP's congestion control;
/// calls that were sent before the last decrease do not count again). Just below the limit at which
/// the last overload was, the increase is slower, as in CUBIC (RFC 9438).
#[derive(Debug, Clone)]
pub struct Aimd {
    limit: f64,
    most: f64,
    decreased: Option<Moment>,
    /// The limit at the last decrease.
    refused: usize,
}

const DECREASE: f64 = 0.7;
/// The rounds for one more call just below the limit of the last overload.
const CAUTION: f64 = 16.0;

impl Aimd {
    /// A limit that begins at `first` and never exceeds `most`.
    pub fn new(first: usize, most: usize) -> Self {
        let most = most.max(1) as f64;
        Self { limit: (first.max(1) as f64).min(most), most, decreased: None, refused: 0 }
    }

    /// Lowers the limit to this one, if it is higher.
    pub fn lower_to(&mut self, limit: usize) {
        self.limit = self.limit.min(limit.max(1) as f64);
    }
}

impl Limiter for Aimd {
    fn limit(&self) -> usize {
        self.limit as usize
    }

    fn ended(&mut self, sample: &Sample) {
        let is_new = || self.decreased.is_none_or(|decreased| sample.sent > decreased);
        match sample.failure {
            None if sample.in_flight >= self.limit() => {
                let is_near = self.limit() + 1 == self.refused;
                let rounds = if is_near { CAUTION } else { 1.0 };
                self.limit = (self.limit + 1.0 / (rounds * self.limit)).min(self.most);
            }
            Some(class) if class.is_overload() && is_new() => {
                self.refused = self.limit();
                self.limit = (self.limit * DECREASE).max(1.0);
                self.decreased = Some(sample.ended);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(sent: u64, ended: u64, in_flight: usize, failure: Option<Class>) -> Sample {
        let at = |millis| Moment::at(Duration::from_millis(millis));
        Sample { sent: at(sent), ended: at(ended), rows: 1, in_flight, failure }
    }

    #[test]
    fn check_39_an_overload_lowers_the_limit_once_a_round_trip() {
        let mut limiter = Aimd::new(10, 100);
        for _ in 0..8 {
            limiter.ended(&sample(0, 5, 10, Some(Class::Overloaded)));
        }
        assert_eq!(limiter.limit(), 7, "all were sent before the decrease");
        limiter.ended(&sample(6, 9, 7, Some(Class::Timeout)));
        assert_eq!(limiter.limit(), 4);
        for sent in 10..100 {
            limiter.ended(&sample(10 * sent, 10 * sent + 1, 1, Some(Class::Unavailable)));
        }
        assert_eq!(limiter.limit(), 1, "never below one");
    }

    #[test]
    fn the_limit_grows_only_where_it_was_reached() {
        let mut limiter = Aimd::new(4, 6);
        (0..100).for_each(|_| limiter.ended(&sample(0, 1, 3, None)));
        assert_eq!(limiter.limit(), 4);
        (0..5).for_each(|_| limiter.ended(&sample(0, 1, 4, None)));
        assert_eq!(limiter.limit(), 5, "one more in a round");
        (0..100).for_each(|_| limiter.ended(&sample(0, 1, 6, None)));
        assert_eq!(limiter.limit(), 6);
    }

    #[test]
    fn the_limit_grows_slowly_to_that_of_the_last_overload() {
        let mut limiter = Aimd::new(4, 8);
        limiter.ended(&sample(0, 1, 4, Some(Class::Overloaded)));
        let rounds = |limiter: &mut Aimd, until| {
            let mut calls = 0;
            while limiter.limit() < until {
                limiter.ended(&sample(2, 3, limiter.limit(), None));
                calls += 1;
            }
            calls
        };
        assert_eq!(limiter.limit(), 2);
        assert_eq!(rounds(&mut limiter, 3), 1);
        let near = rounds(&mut limiter, 4);
        assert!((40..=60).contains(&near), "about 16 rounds of 3 calls: {near}");
        let beyond = rounds(&mut limiter, 5);
        assert!(beyond <= 5, "a round of 4 calls: {beyond}");
    }

    #[test]
    fn the_message_s_own_faults_do_not_lower_the_limit() {
        let mut limiter = Aimd::new(4, 8);
        limiter.ended(&sample(0, 1, 4, Some(Class::Refused)));
        limiter.ended(&sample(0, 1, 4, Some(Class::Ambiguous)));
        assert_eq!(limiter.limit(), 4);
    }
}
