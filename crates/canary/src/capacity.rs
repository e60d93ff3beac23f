//! The number of a canary's calls that may be in flight at a time.
//!
//! Both arms share the engine. A canary with a tenth of the requests, each of which costs a
//! hundred times as much as one on live, would take nine tenths of the engine's time, and
//! live's requests would wait behind it. Its calls in flight are therefore limited to its
//! share of the engine's work in progress, which is the rate of requests times the time
//! that a request on live usually takes (Little 1961).

use std::time::Duration;

use outrigger_core::{Arm, Moment};

use crate::{Observation, Outcome};

/// A canary whose calls take no more than this multiple of live's usual time gets enough
/// places for its share of the requests. One that takes longer gets its share of the
/// engine only.
const LONGER: f64 = 3.0;

/// Standard deviations of the number of calls in flight for which there are places, if
/// the canary takes about as long as live.
const DEVIATIONS: f64 = 3.0;

/// The part of its usual time by which live's usual time may rise in a second: about a
/// tenth in ten seconds. A canary that slows live down raises its own limit no faster.
const RISE: f64 = 0.01;

/// Fewest answers of live by which its usual time is measured.
const ANSWERS: u64 = 16;

/// The part of a new measurement in the mean rate.
const WEIGHT: f64 = 0.25;

/// The engine's work in progress for one tag, measured by its requests.
#[derive(Debug, Clone)]
pub(crate) struct Capacity {
    /// Requests a second on both arms; `None` before the first measurement.
    rate: Option<f64>,
    /// The time that a request on live takes if it does not wait for others, in seconds;
    /// `None` before it is known.
    usual: Option<f64>,
    /// The beginning of the current measurement.
    since: Moment,
    /// Requests on both arms since then.
    requests: u64,
    /// The time of live's answers since the last measurement of the usual time.
    answers: Sum,
}

/// A number of answers and the sum of their times, in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    answers: u64,
    took: f64,
    /// Time over which they were counted.
    lasted: f64,
}

impl Capacity {
    /// Nothing is known at `now`.
    pub(crate) fn new(now: Moment) -> Self {
        Self { rate: None, usual: None, since: now, requests: 0, answers: Sum::default() }
    }

    /// Counts a request.
    pub(crate) fn observe(&mut self, observation: &Observation) {
        self.requests += 1;
        let is_answer = observation.arm == Arm::Live && observation.outcome != Outcome::Failed;
        if let Some(latency) = observation.latency.filter(|_| is_answer) {
            self.answers.answers += 1;
            self.answers.took += latency.as_secs_f64();
        }
    }

    /// Ends a measurement, and begins the next one.
    pub(crate) fn measure(&mut self, now: Moment) {
        let passed = now.since(self.since).as_secs_f64();
        if passed <= 0.0 {
            return;
        }
        let measured = self.requests as f64 / passed;
        self.rate = Some(self.rate.map_or(measured, |rate| rate + WEIGHT * (measured - rate)));
        (self.since, self.requests) = (now, 0);
        self.answers.lasted += passed;
        let Sum { answers, took, lasted } = self.answers;
        if answers >= ANSWERS {
            let (mean, rise) = (took / answers as f64, 1.0 + RISE * lasted);
            self.usual = Some(self.usual.map_or(mean, |usual| mean.min(usual * rise)));
            self.answers = Sum::default();
        }
    }

    /// The limit of a canary's calls in flight; at least 1. `part` is its part of the
    /// requests, shadowed ones included, and `took` the mean time of its calls; `None` if
    /// none has ended yet.
    pub(crate) fn most_in_flight(&self, part: f64, took: Option<Duration>) -> u32 {
        let (Some(rate), Some(usual)) = (self.rate, self.usual) else { return 1 };
        let in_flight = |seconds: f64| part * rate * seconds;
        let most = match took.filter(|took| !self.is_costly(*took)) {
            // The number in flight has about a Poisson distribution.
            Some(took) => {
                let mean = in_flight(took.as_secs_f64());
                (mean + DEVIATIONS * mean.sqrt()).ceil() + 1.0
            }
            None => in_flight(usual).floor().max(1.0),
        };
        most as u32
    }

    /// True if a canary whose calls take so long gets only its share of the engine.
    pub(crate) fn is_costly(&self, took: Duration) -> bool {
        self.usual.is_some_and(|usual| took.as_secs_f64() > LONGER * usual)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Lets a second pass with so many answers of live.
    fn second(capacity: &mut Capacity, second: u64, requests: u64, latency: Duration) {
        let seen = Observation { arm: Arm::Live, latency: Some(latency), outcome: Outcome::Empty };
        (0..requests).for_each(|_| capacity.observe(&seen));
        capacity.measure(at(second));
    }

    /// A capacity that was measured for a second.
    fn measured(requests: u64, latency: Duration) -> Capacity {
        let mut capacity = Capacity::new(at(0));
        second(&mut capacity, 1, requests, latency);
        capacity
    }

    #[test]
    fn an_unknown_canary_gets_its_share_of_the_work_and_at_least_one_call() {
        assert_eq!(Capacity::new(at(0)).most_in_flight(0.1, None), 1);
        assert_eq!(measured(400, millis(1)).most_in_flight(0.1, None), 1);
        assert_eq!(measured(400, millis(100)).most_in_flight(0.1, None), 4);
    }

    #[test]
    fn a_canary_like_live_hardly_ever_lacks_a_place() {
        for (rate, latency) in [(400, 1), (400, 20), (100, 20), (2000, 50)] {
            let most = measured(rate, millis(latency)).most_in_flight(0.1, Some(millis(latency)));
            let offered = 0.1 * rate as f64 * latency as f64 / 1e3;
            assert!(blocked(offered, most) < 0.003, "{rate}/s of {latency} ms: {most}");
        }
    }

    /// Erlang's loss formula: the share of calls that find all `places` taken.
    fn blocked(offered: f64, places: u32) -> f64 {
        (1..=places)
            .fold(1.0, |blocked, place| offered * blocked / (f64::from(place) + offered * blocked))
    }

    #[test]
    fn a_canary_that_takes_much_longer_gets_its_share_of_the_engine() {
        let capacity = measured(400, millis(100));
        let most = |took| capacity.most_in_flight(0.1, Some(millis(took)));
        assert!(most(299) > 12, "about three times live's part");
        assert_eq!([most(301), most(5000)], [4, 4]);
    }

    #[test]
    fn a_canary_that_slows_live_down_hardly_raises_its_limit() {
        let mut capacity = measured(400, millis(100));
        for passed in 2..12 {
            second(&mut capacity, passed, 400, millis(1000));
        }
        assert_eq!(capacity.most_in_flight(0.1, Some(millis(1000))), 4);
    }

    #[test]
    fn the_usual_time_follows_live() {
        let mut capacity = measured(400, millis(100));
        for passed in 2..300 {
            second(&mut capacity, passed, 400, millis(500));
        }
        assert!(capacity.most_in_flight(0.1, Some(millis(500))) > 20, "live is slower too");
        second(&mut capacity, 300, 400, millis(10));
        assert_eq!(capacity.most_in_flight(0.1, None), 1, "live is fast again");
    }

    #[test]
    fn few_answers_are_collected_until_they_measure_the_usual_time() {
        let mut capacity = Capacity::new(at(0));
        for passed in 1..=5 {
            second(&mut capacity, passed, 3, millis(1000));
        }
        assert_eq!(capacity.usual, None);
        second(&mut capacity, 6, 3, millis(1000));
        assert_eq!(capacity.usual, Some(1.0));
    }

    proptest! {
        #[test]
        fn there_is_always_room_for_one_call(
            requests in 0..10_000_u64,
            latency in 0..10_000_u64,
            part in 0.0..1.0f64,
            took in prop::option::of(0..100_000_u64),
        ) {
            let capacity = measured(requests, millis(latency));
            prop_assert!(capacity.most_in_flight(part, took.map(millis)) >= 1);
        }
    }
}
