//! The classes of failures.

/// A class of failures, by the decision that follows. A status alone rarely says whether the host or
/// the message is at fault: two of three servers answer a client's mistake with 500.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The host did not process the message: no connection, UNAVAILABLE, 503. Another host may.
    Unavailable,
    /// The host refused the message because it has too much work: 429, RESOURCE_EXHAUSTED, a full
    /// queue.
    Overloaded,
    /// The connection broke while the host had the message. The message may have ended it.
    Lost,
    /// There was no answer in time.
    Timeout,
    /// The message is larger than the host takes. A smaller one may pass.
    TooLarge(Cut),
    /// The message, or the caller, is refused. The same message would be refused again.
    Refused,
    /// The host or the message is at fault: 500, INTERNAL, UNKNOWN, an answer that is not valid.
    Ambiguous,
}

/// The size that a host takes, as far as its refusal names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// The most rows in a message.
    pub rows: Option<u64>,
    /// The most bytes in a message.
    pub bytes: Option<u64>,
}

impl Class {
    /// True if the failure may be the fault of the message. A message with two such failures, on
    /// two hosts, is not sent again as a whole.
    pub fn may_be_the_message(self) -> bool {
        matches!(self, Self::Lost | Self::Timeout | Self::Ambiguous)
    }

    /// True if the failure says that the host should have fewer calls in flight.
    pub fn is_overload(self) -> bool {
        matches!(self, Self::Unavailable | Self::Overloaded | Self::Timeout)
    }
}
