//! The caller's deadline.

use std::{future::Future, time::Duration};

use http::HeaderMap;
use tokio::time::{Instant, timeout_at};
use tonic::Code;

use crate::status::Status;

/// Time by which the answer precedes the deadline. At the deadline the caller's own
/// transport would report the call as cancelled instead.
const MARGIN: Duration = Duration::from_millis(2);

/// The time by which the answer must be sent; `None` if the caller set no timeout.
pub(super) fn of(headers: &HeaderMap) -> Option<Instant> {
    let timeout = parse(headers.get("grpc-timeout")?.to_str().ok()?)?;
    Instant::now().checked_add(timeout.saturating_sub(MARGIN.min(timeout / 4)))
}

/// The result of `work`, or DEADLINE_EXCEEDED.
pub(super) async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = T>,
) -> Result<T, Status> {
    match deadline {
        None => Ok(work.await),
        Some(deadline) => timeout_at(deadline, work).await.map_err(|_| exceeded()),
    }
}

/// The error with TensorFlow's message.
pub(super) fn exceeded() -> Status {
    Status::new(Code::DeadlineExceeded, "Timed out waiting for notification")
}

/// Parses a gRPC timeout: up to eight digits and a unit.
fn parse(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parse("99999999n"), Some(Duration::from_nanos(99_999_999)));
        for wrong in ["", "m", "123456789m", "-1S", "+1S", "1x", "1.5S"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
