//! The limits that refuse requests, as labels.

use super::REFUSED;

/// A limit that refuses requests as OVERLOADED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// `server.max_in_flight`.
    InFlight,
    /// `server.max_waiting`.
    Waiting,
    /// `limits.per_caller`.
    Caller,
    /// `limits.per_model`.
    Model,
    /// `limits.unknown_names`.
    UnknownNames,
    /// The caller's deadline, which the answer would miss.
    Deadline,
    /// The account of memory for requests, which has no room for one more that waits, or for the one
    /// that waited.
    Memory,
    /// The room that other predictions leave for those of low priority.
    Priority,
}

impl Limit {
    pub(super) const ALL: [Self; 8] = [
        Self::InFlight,
        Self::Waiting,
        Self::Caller,
        Self::Model,
        Self::UnknownNames,
        Self::Deadline,
        Self::Memory,
        Self::Priority,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Waiting => "waiting",
            Self::Caller => "caller",
            Self::Model => "model",
            Self::UnknownNames => "unknown_names",
            Self::Deadline => "deadline",
            Self::Memory => "memory",
            Self::Priority => "priority",
        }
    }
}

/// Counts a request that a limit refuses.
pub(crate) fn refused(limit: Limit) {
    metrics::counter!(REFUSED, "limit" => limit.as_str()).increment(1);
}
