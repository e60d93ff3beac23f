//! The latency above which an answer is slow.

use serde::{Deserialize, Serialize};

use super::sketch;
use crate::Reference;

/// The latency above which an answer is slow, which follows a quantile of live.
///
/// It begins at live's quantile before the split. Each answer of live that is slow raises
/// it by `STEP * quantile`, and each other one lowers it by `STEP * (1 - quantile)`, both
/// of its logarithm (Gibbs & Candès 2021). So the share of live's answers that are slow
/// tends to `1 - quantile` for any latencies: after `n` answers during which the
/// threshold has moved from `a` to `b`, it deviates by exactly `ln(b / a) / (STEP * n)`.
///
/// The threshold for a request depends on earlier requests only, not on its arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved")]
pub(crate) struct Threshold {
    /// Position in bins of the sketch, from an edge with this number.
    place: f64,
    /// Which of live's last 64 answers were slow, one bit each.
    recent: u64,
}

/// A larger step follows live faster, a smaller one stays closer to the quantile. With
/// this one, the threshold for the 95th percentile falls to half in about 460 answers of
/// live, and doubles in 25 slow ones.
const STEP: f64 = 0.03;

impl Threshold {
    /// Live's quantile before the split.
    pub(crate) fn new(reference: &Reference) -> Self {
        Self { place: f64::from(reference.slow_bin()), recent: 0 }
    }

    /// The number of bins by which a latency, given by its place in the sketch, lies above
    /// the threshold, rounded up.
    pub(crate) fn bins_above(self, latency: f64) -> i32 {
        sketch::bin(latency - self.place)
    }

    /// Moves after an answer of live.
    pub(crate) fn follow(&mut self, quantile: f64, is_slow: bool) {
        let towards = if is_slow { quantile } else { quantile - 1.0 };
        let place = self.place + sketch::steps_of_log(STEP * towards);
        self.place = place.clamp(f64::from(sketch::FIRST), f64::from(sketch::LAST));
        self.recent = (self.recent << 1) | u64::from(is_slow);
    }

    /// False while far more of live's recent answers are slow than at the quantile:
    /// live has become slower, and the threshold is at a lower quantile until it has
    /// followed.
    pub(crate) fn is_at(self, quantile: f64) -> bool {
        let expected = f64::from(u64::BITS) * (1.0 - quantile);
        f64::from(self.recent.count_ones()) <= 2.0 * expected + 3.0
    }

    /// The higher one of two recorders that are merged: any choice is valid, and this one
    /// does not depend on the order.
    pub(super) fn merge(&mut self, other: Self) {
        if (other.place, other.recent) > (self.place, self.recent) {
            *self = other;
        }
    }
}

/// The serialised threshold before validation.
#[derive(Deserialize)]
struct Saved {
    place: f64,
    recent: u64,
}

impl TryFrom<Saved> for Threshold {
    type Error = &'static str;

    fn try_from(Saved { place, recent }: Saved) -> Result<Self, Self::Error> {
        let range = f64::from(sketch::FIRST)..=f64::from(sketch::LAST);
        if range.contains(&place) {
            Ok(Self { place, recent })
        } else {
            Err("a threshold out of a sketch's range")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A threshold that begins at a latency of 1 s.
    fn at_one_second() -> Threshold {
        Threshold { place: 0.0, recent: 0 }
    }

    /// Follows live's answers; returns the number of slow ones.
    fn follow(threshold: &mut Threshold, quantile: f64, latencies: &[f64]) -> u64 {
        let slow = latencies.iter().filter(|latency| {
            let is_slow = threshold.bins_above(sketch::place(**latency)) > 0;
            threshold.follow(quantile, is_slow);
            is_slow
        });
        slow.count() as u64
    }

    proptest! {
        #[test]
        fn the_share_of_slow_answers_is_that_of_the_quantile_for_any_latencies(
            latencies in prop::collection::vec((-5.0..5.0f64).prop_map(f64::exp), 1..2000),
            quantile in 0.5..0.99f64,
        ) {
            let mut threshold = at_one_second();
            let slow = follow(&mut threshold, quantile, &latencies) as f64;
            let expected = (1.0 - quantile) * latencies.len() as f64;
            let moved = threshold.place / sketch::steps_of_log(STEP);
            prop_assert!((slow - expected - moved).abs() < 1e-6, "{} {}", slow, expected);
            // It stays among the latencies, so the deviation is bounded.
            prop_assert!(moved.abs() <= 5.0 / STEP + 1.0, "{}", moved);
        }
    }

    #[test]
    fn it_is_at_the_quantile_again_when_it_has_followed_a_slower_live() {
        let spread = |factor: f64| {
            (0..1000_u32).map(move |answer| factor * f64::from(1 + answer * 389 % 1000) / 1000.0)
        };
        let mut threshold = at_one_second();
        follow(&mut threshold, 0.95, &spread(1.0).collect::<Vec<_>>());
        assert!(threshold.is_at(0.95));
        let onset: Vec<_> = spread(5.0).take(15).collect();
        follow(&mut threshold, 0.95, &onset);
        assert!(!threshold.is_at(0.95), "{threshold:?}");
        follow(&mut threshold, 0.95, &spread(5.0).collect::<Vec<_>>());
        assert!(threshold.is_at(0.95));
        let seconds = sketch::edge(threshold.place as i32);
        assert!((4.2..5.1).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_threshold_out_of_range_is_refused() {
        let read = |json: &str| serde_json::from_str::<Threshold>(json);
        assert_eq!(read(r#"{"place": -12.5, "recent": 3}"#).ok().map(|it| it.place), Some(-12.5));
        assert!(read(r#"{"place": 1e9, "recent": 0}"#).is_err());
    }
}
