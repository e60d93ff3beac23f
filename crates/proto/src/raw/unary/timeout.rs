//! The text of gRPC's timeouts.

use std::time::Duration;

/// The header with the time for which the caller of a call waits whose own timeout is longer, in the
/// form of gRPC's: a server need not begin with the call later.
pub const CALLER_TIMEOUT: &str = "outrigger-caller-timeout";

/// Parses a `grpc-timeout`: at most eight digits and a unit, as the protocol defines it.
pub fn timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = &text[..text.len() - unit.len_utf8()];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(count * 3600),
        'M' => Duration::from_secs(count * 60),
        'S' => Duration::from_secs(count),
        'm' => Duration::from_millis(count),
        'u' => Duration::from_micros(count),
        'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_the_protocol_writes_them() {
        for (text, expected) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("99999999S", Duration::from_secs(99_999_999)),
            ("250m", Duration::from_millis(250)),
            ("10u", Duration::from_micros(10)),
            ("0n", Duration::ZERO),
        ] {
            assert_eq!(timeout(text), Some(expected), "{text}");
        }
    }
}
