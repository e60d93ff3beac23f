//! Times of day, as records have them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The present time (RFC 3339, UTC).
pub(crate) fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// The present time, since 1970.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
