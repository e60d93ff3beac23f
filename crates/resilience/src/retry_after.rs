//! The pause that a server asks for.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header::RETRY_AFTER};

/// The pause that `Retry-After` asks for, in seconds or as a date (RFC 9110, section 10.2.3); at most
/// `most`.
pub fn retry_after(headers: &HeaderMap, now: SystemTime, most: Duration) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            date.duration_since(now).unwrap_or_default()
        }
    };
    Some(asked.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(3600);

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Fri, 20 Nov 2026 12:00:00 GMT").expect("a date");
        let asked = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().expect("a header"))]);
            retry_after(&headers, now, MOST)
        };
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("Fri, 20 Nov 2026 12:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(asked("Fri, 20 Nov 2026 11:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(asked("18446744073709551615"), Some(MOST));
        assert_eq!(asked("Fri, 20 Nov 9998 12:00:00 GMT"), Some(MOST));
        assert_eq!(asked("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new(), now, MOST), None);
    }
}
