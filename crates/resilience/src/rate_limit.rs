//! The pause that the headers `x-ratelimit-*` ask for, which OpenAI's API and gateways like it send.

use std::time::Duration;

use http::HeaderMap;

/// The pause before a host takes a further request of `tokens` tokens; at most `most`. `None` if it
/// takes one now, or does not say so.
///
/// The headers are `x-ratelimit-remaining-requests`, `x-ratelimit-reset-requests` and the same for
/// `tokens`. A reset is a number of seconds or a duration such as `6m0s` or `20ms`.
pub fn rate_limit_pause(headers: &HeaderMap, tokens: u64, most: Duration) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let pause = |remaining: &str, reset: &str, needed: u64| {
        let remaining: u64 = text(remaining)?.parse().ok()?;
        (remaining < needed.max(1)).then(|| text(reset).and_then(duration)).flatten()
    };
    let requests = pause("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests", 1);
    let tokens = pause("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens", tokens);
    requests.max(tokens).map(|asked| asked.min(most))
}

/// Reads seconds, or numbers with units.
fn duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let (mut rest, mut total) = (text, None);
    while !rest.is_empty() {
        let is_digit = |letter: char| letter.is_ascii_digit() || letter == '.';
        let (number, after) = rest.split_at(rest.find(|letter| !is_digit(letter))?);
        let (unit, after) = after.split_at(after.find(is_digit).unwrap_or(after.len()));
        let seconds = match unit {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total = Some(total.unwrap_or(0.0) + number.parse::<f64>().ok()? * seconds);
        rest = after;
    }
    Duration::try_from_secs_f64(total?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(3600);

    fn pause(pairs: &[(&'static str, &str)], tokens: u64) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: http::HeaderName = format!("x-ratelimit-{name}").parse().expect("a name");
            headers.insert(name, value.parse().expect("a value"));
        }
        rate_limit_pause(&headers, tokens, MOST)
    }

    #[test]
    fn durations_have_units_or_are_seconds() {
        for (text, millis) in [
            ("1s", Some(1000)),
            ("6m0s", Some(360_000)),
            ("20ms", Some(20)),
            ("1h2m3.5s", Some(3_723_500)),
            ("1d", Some(86_400_000)),
            ("7", Some(7000)),
            ("0.25", Some(250)),
            ("", None),
            ("soon", None),
            ("1", Some(1000)),
            ("1w", None),
            ("1s2", None),
            ("-1", None),
            ("NaN", None),
            ("inf", None),
        ] {
            assert_eq!(duration(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn a_host_pauses_when_too_little_remains() {
        let requests = [("remaining-requests", "0"), ("reset-requests", "2s")];
        assert_eq!(pause(&requests, 1), Some(Duration::from_secs(2)));
        let tokens = [("remaining-tokens", "99"), ("reset-tokens", "6m0s")];
        assert_eq!(pause(&tokens, 99), None);
        assert_eq!(pause(&tokens, 100), Some(Duration::from_secs(360)));
        let both = [&requests[..], &tokens[..]].concat();
        assert_eq!(pause(&both, 100), Some(Duration::from_secs(360)));
        assert_eq!(pause(&both, 1), Some(Duration::from_secs(2)));
    }

    #[test]
    fn headers_that_say_nothing_ask_for_no_pause() {
        assert_eq!(pause(&[], 1), None);
        assert_eq!(pause(&[("remaining-requests", "0")], 1), None);
        assert_eq!(pause(&[("remaining-requests", "few"), ("reset-requests", "1s")], 1), None);
        assert_eq!(pause(&[("remaining-requests", "5"), ("reset-requests", "1s")], 1), None);
        let long = [("remaining-requests", "0"), ("reset-requests", "9d")];
        assert_eq!(pause(&long, 1), Some(MOST));
    }
}
