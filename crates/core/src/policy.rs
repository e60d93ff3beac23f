//! The times and limits by which the machines decide.

use std::time::Duration;

/// The times and limits by which the machines decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// A version nobody asked for in this time leaves the engine.
    pub idle_ttl: Duration,
    /// A version unused for this long is deleted.
    pub retain: Duration,
    /// Waits between attempts.
    pub backoff: Backoff,
    /// How often a followed tag is looked up.
    pub poll_interval: Duration,
    /// Requests wait this long for an engine that does not answer, and for what
    /// failed only when it is tried again this soon.
    pub patience: Duration,
    /// A failure of something that never worked is remembered this long.
    pub forget_after: Duration,
    /// Tags and digests that never worked, known at the same time.
    pub max_unproven: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            idle_ttl: Duration::from_secs(30 * 60),
            retain: Duration::from_secs(7 * 24 * 3600),
            backoff: Backoff::default(),
            poll_interval: Duration::from_secs(30),
            patience: Duration::from_secs(5),
            forget_after: Duration::from_secs(30),
            max_unproven: 256,
        }
    }
}

/// Exponential, jittered, capped waits between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait after the first failure.
    pub first: Duration,
    /// The longest wait at all.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), most: Duration::from_secs(60) }
    }
}

impl Backoff {
    /// The wait after `failures` failures in a row: doubles with each, and lies
    /// between half of that and all of it by `jitter` (0 to 1). Never less than
    /// `retry_after`, which whoever failed asked for, within ten times `most`.
    pub fn delay(&self, failures: u32, jitter: f64, retry_after: Option<Duration>) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let full = self.first.saturating_mul(1 << doublings).min(self.most);
        let wait = full.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        let asked = retry_after.unwrap_or_default().min(self.most.saturating_mul(10));
        wait.max(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_most_and_are_jittered() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };
        let full = |failures| backoff.delay(failures, 1.0, None).as_secs();
        assert_eq!([1, 2, 3, 7, 4000].map(full), [1, 2, 4, 60, 60]);
        assert_eq!(backoff.delay(2, 0.0, None), Duration::from_secs(1));
    }

    #[test]
    fn retry_after_is_respected_within_reason() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };
        let delay = |asked| backoff.delay(1, 1.0, Some(Duration::from_secs(asked))).as_secs();
        assert_eq!(delay(120), 120);
        assert_eq!(delay(1_000_000), 600);
    }
}
