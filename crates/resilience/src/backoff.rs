//! Pauses between attempts.

use std::time::Duration;

/// Pauses that double from attempt to attempt, with jitter: clients that failed together do not
/// return together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The longest pause before the second attempt.
    pub first: Duration,
    /// The longest pause of all.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(50), most: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The pause after `made` failed attempts, between half and all of the doubled time. `jitter` is
    /// a random number of [0, 1).
    pub fn pause(&self, made: u32, jitter: f64) -> Duration {
        let doublings = made.saturating_sub(1).min(20);
        let longest = self.first.saturating_mul(1 << doublings).min(self.most);
        longest.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_31_pauses_double_up_to_the_limit_and_vary() {
        let (first, most) = (Duration::from_millis(100), Duration::from_millis(350));
        let backoff = Backoff { first, most };
        let longest = |made| backoff.pause(made, 1.0).as_millis();
        assert_eq!([1, 2, 3, 4, 99].map(longest), [100, 200, 350, 350, 350]);
        assert_eq!(backoff.pause(2, 0.0), Duration::from_millis(100), "half without jitter");
    }
}
