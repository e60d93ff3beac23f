//! The policy of the machines: their times and limits.

use std::time::Duration;

/// The policy of the machines: their times and limits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    /// A version without a request for this long leaves the engine.
    pub idle_ttl: Duration,
    /// The files of a version unused for this long are deleted.
    pub retain: Duration,
    /// Waits between attempts.
    pub backoff: Backoff,
    /// Waits between attempts to replace a version that is loaded again after each failure.
    pub replace_backoff: Backoff,
    /// The interval between look-ups of a followed tag.
    pub poll_interval: Duration,
    /// The longest time that requests wait for an engine that does not answer. Requests wait for a
    /// failed version only if its next attempt comes this soon.
    pub patience: Duration,
    /// The time for which the failure of a tag or digest that never worked is remembered.
    pub forget_after: Duration,
    /// The limit of requested tags and digests that are looked up or brought up for the first time
    /// at the same time.
    pub max_unproven: usize,
    /// The limit of remembered answers that a tag or digest does not exist, or cannot be served. The
    /// oldest is forgotten for a new one.
    pub max_absent: usize,
    /// The limit of a model's tags that only requests name. The longest unused one is forgotten for
    /// a new one.
    pub max_tags: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            idle_ttl: Duration::from_secs(30 * 60),
            retain: Duration::from_secs(7 * 24 * 3600),
            backoff: Backoff::default(),
            replace_backoff: Backoff {
                first: Duration::from_secs(10 * 60),
                most: Duration::from_secs(12 * 3600),
            },
            poll_interval: Duration::from_secs(30),
            patience: Duration::from_secs(5),
            forget_after: Duration::from_secs(30),
            max_unproven: 256,
            max_absent: 1024,
            max_tags: 64,
        }
    }
}

/// Exponential, jittered, capped waits between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// The longest wait after the first failure.
    pub first: Duration,
    /// The longest wait after any failure.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), most: Duration::from_secs(60) }
    }
}

impl Backoff {
    /// The wait after `failures` failures in a row. The upper bound doubles with each failure;
    /// `jitter` (0 to 1) picks a wait between half of it and all of it. The wait is never less than
    /// `retry_after`, the delay requested by the failing service, which counts up to ten times
    /// `most`.
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
