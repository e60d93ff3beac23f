//! Fields of messages as JSON: null where protobuf has an empty value for "none",
//! enums as words, times as text.

pub mod fields;

use std::time::{Duration, SystemTime};

use serde::{Serialize as _, Serializer};

use crate::outrigger::v1::{canary::Phase, canary_decision::Outcome, model_version::State};

/// A text; null if it is empty.
pub(crate) fn text<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    Some(text).filter(|text| !text.is_empty()).serialize(serializer)
}

/// A number; null if it is 0.
pub(crate) fn number<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    Some(number).filter(|number| **number != 0).serialize(serializer)
}

/// RFC 3339 in UTC, with milliseconds; null if there is none.
pub(crate) fn time<S: Serializer>(
    time: &Option<prost_types::Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let at = time.and_then(|time| SystemTime::try_from(time).ok());
    at.map(|at| humantime::format_rfc3339_millis(at).to_string()).serialize(serializer)
}

/// Seconds with their fraction; null if there are none.
pub(crate) fn seconds<S: Serializer>(
    length: &Option<prost_types::Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let length = length.and_then(|length| Duration::try_from(length).ok());
    length.map(|length| length.as_secs_f64()).serialize(serializer)
}

/// A word such as `available`.
pub(crate) fn state<S: Serializer>(state: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    let name = State::try_from(*state).unwrap_or_default().as_str_name();
    word(name, "STATE_", serializer)
}

/// A word such as `warming_up`.
pub(crate) fn phase<S: Serializer>(phase: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    let name = Phase::try_from(*phase).unwrap_or_default().as_str_name();
    word(name, "PHASE_", serializer)
}

/// A word such as `rolled_back`.
pub(crate) fn outcome<S: Serializer>(outcome: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    let name = Outcome::try_from(*outcome).unwrap_or_default().as_str_name();
    word(name, "OUTCOME_", serializer)
}

fn word<S: Serializer>(name: &str, prefix: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let word = name.strip_prefix(prefix).unwrap_or(name).to_lowercase();
    serializer.serialize_str(&word)
}
