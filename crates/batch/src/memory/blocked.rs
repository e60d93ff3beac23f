//! The time in which at least one of several waits.

use std::time::{Duration, Instant};

/// The time so far, and those that wait now.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    waiting: usize,
    since: Option<Instant>,
    total: Duration,
}

impl Blocked {
    /// One more waits.
    pub(super) fn begin(&mut self, now: Instant) {
        self.waiting += 1;
        self.since.get_or_insert(now);
    }

    /// One does not wait any more.
    pub(super) fn end(&mut self, now: Instant) {
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0
            && let Some(since) = self.since.take()
        {
            self.total += now.saturating_duration_since(since);
        }
    }

    /// The time until now.
    pub(super) fn total(&self, now: Instant) -> Duration {
        let since = self.since.map(|since| now.saturating_duration_since(since));
        self.total + since.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_several_counts_once() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut blocked = Blocked::default();
        blocked.begin(start);
        blocked.begin(start + second);
        blocked.end(start + 3 * second);
        assert_eq!(blocked.total(start + 4 * second), 4 * second);
        blocked.end(start + 5 * second);
        assert_eq!(blocked.total(start + 9 * second), 5 * second);
        blocked.begin(start + 9 * second);
        assert_eq!(blocked.total(start + 10 * second), 6 * second);
    }
}
