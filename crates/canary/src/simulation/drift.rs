//! Changes of the latency of both arms alike, as on a machine that becomes busy.

use std::f64::consts::TAU;

use super::Random;

/// How the latency of both arms changes in the course of a trial. Spans of time are
/// counted in requests of both arms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Drift {
    /// Not at all.
    Steady,
    /// From the split on, answers take longer by a constant factor.
    Slower {
        /// The factor.
        factor: f64,
    },
    /// From the split on, the factor rises smoothly and falls back to 1, along one period
    /// of a cosine.
    Swell {
        /// The largest factor.
        factor: f64,
        /// Requests until the factor is 1 again.
        requests: u64,
    },
    /// Bursts of slow answers at random times, before the split as well. The lengths of
    /// bursts and of the pauses between them are geometrically distributed.
    Bursts {
        /// The factor during a burst.
        factor: f64,
        /// Mean number of requests in a burst.
        burst: f64,
        /// Mean number of requests in a pause.
        pause: f64,
    },
}

/// The state of a drift between two requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drifting {
    pub(super) drift: Drift,
    requests: u64,
    is_burst: bool,
}

impl Drifting {
    pub(super) fn new(drift: Drift) -> Self {
        Self { drift, requests: 0, is_burst: false }
    }

    /// The factor on the latency of the next request before the split.
    pub(super) fn before(&mut self, random: &mut Random) -> f64 {
        let Drift::Bursts { factor, burst, pause } = self.drift else { return 1.0 };
        let mean = if self.is_burst { burst } else { pause };
        self.is_burst ^= random.happens(1.0 / mean);
        if self.is_burst { factor } else { 1.0 }
    }

    /// The factor on the latency of the next request after the split.
    pub(super) fn factor(&mut self, random: &mut Random) -> f64 {
        self.requests += 1;
        match self.drift {
            Drift::Steady => 1.0,
            Drift::Slower { factor } => factor,
            Drift::Swell { factor, requests } => {
                let passed = (self.requests as f64 / requests as f64).min(1.0);
                1.0 + (factor - 1.0) * (1.0 - (TAU * passed).cos()) / 2.0
            }
            Drift::Bursts { .. } => self.before(random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factors on so many requests after the split.
    fn factors(drift: Drift, requests: usize) -> Vec<f64> {
        let (mut drifting, mut random) = (Drifting::new(drift), Random::new(1));
        (0..requests).map(|_| drifting.factor(&mut random)).collect()
    }

    #[test]
    fn a_swell_rises_to_its_factor_and_ends() {
        let factors = factors(Drift::Swell { factor: 3.0, requests: 1000 }, 2000);
        assert!(factors[0] < 1.001 && (factors[499] - 3.0).abs() < 1e-9);
        assert!(factors[..500].is_sorted() && factors[999..].iter().all(|it| *it == 1.0));
    }

    #[test]
    fn bursts_have_their_mean_length_and_take_their_part_of_the_requests() {
        let factors = factors(Drift::Bursts { factor: 4.0, burst: 50.0, pause: 200.0 }, 1_000_000);
        let slow = factors.iter().filter(|it| **it == 4.0).count() as f64;
        let bursts = factors.windows(2).filter(|pair| pair[0] < pair[1]).count() as f64;
        assert!((slow / 1e6 - 0.2).abs() < 0.01, "{slow}");
        assert!((slow / bursts - 50.0).abs() < 3.0, "{slow} in {bursts}");
    }

    #[test]
    fn only_bursts_begin_before_the_split() {
        let slower = Drift::Slower { factor: 2.0 };
        let mut random = Random::new(1);
        assert_eq!(Drifting::new(slower).before(&mut random), 1.0);
        assert_eq!(Drifting::new(slower).factor(&mut random), 2.0);
        let mut bursts = Drifting::new(Drift::Bursts { factor: 4.0, burst: 1e9, pause: 1.0 });
        assert_eq!(bursts.before(&mut random), 4.0);
    }
}
