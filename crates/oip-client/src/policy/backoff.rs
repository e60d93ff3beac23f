//! Pauses between attempts.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header::RETRY_AFTER};

/// The largest pause that a host may ask for.
const MOST_ASKED: Duration = Duration::from_secs(3600);

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

/// The pause that `Retry-After` asks for, in seconds or as a date; at most an hour.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            date.duration_since(now).unwrap_or_default()
        }
    };
    Some(asked.min(MOST_ASKED))
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

    #[test]
    fn check_31_retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Fri, 20 Nov 2026 12:00:00 GMT").expect("a date");
        let asked = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().expect("a header"))]);
            retry_after(&headers, now)
        };
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("Fri, 20 Nov 2026 12:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(asked("Fri, 20 Nov 2026 11:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(asked("86400000"), Some(MOST_ASKED));
        assert_eq!(asked("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
