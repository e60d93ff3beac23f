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
    /// A caller's share of the requests in progress for a crowded version.
    Share,
    /// The caller's deadline, which the answer would miss.
    Deadline,
}

impl Limit {
    pub(super) const ALL: [Self; 7] = [
        Self::InFlight,
        Self::Waiting,
        Self::Caller,
        Self::Model,
        Self::UnknownNames,
        Self::Share,
        Self::Deadline,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Waiting => "waiting",
            Self::Caller => "caller",
            Self::Model => "model",
            Self::UnknownNames => "unknown_names",
            Self::Share => "share",
            Self::Deadline => "deadline",
        }
    }
}

/// Counts a request that a limit refuses.
pub(crate) fn refused(limit: Limit) {
    metrics::counter!(REFUSED, "limit" => limit.as_str()).increment(1);
}
