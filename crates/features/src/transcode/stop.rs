//! The reasons for which packing stops.

use outrigger_core::{Failure, Reason};

use super::schema;
use crate::{
    call::Call,
    limits::refuse_too_many,
    place::Place,
    wire::{MAX_DEPTH, Malformed, Reader, WireType},
};

/// The reason why a call cannot be packed.
#[derive(Debug)]
pub(super) enum Stop {
    /// A request's bytes are not a valid message. The request and the error are
    /// determined by a second pass.
    Malformed(Malformed),
    Refused(Box<Failure>),
}

impl From<Malformed> for Stop {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Refused(Box::new(failure))
    }
}

/// The failure of a refused call. Packing stopped at the first error, so the requests are checked
/// again for an invalid message or too many treatments, which take precedence.
pub(super) fn refused<'r>(
    messages: impl IntoIterator<Item = &'r [u8]>,
    call: &Call<'_>,
    stop: impl Into<Stop>,
) -> Failure {
    let stop = stop.into();
    if let Stop::Malformed(error @ Malformed::Entries) = stop {
        // The second pass would read on what the limit is to leave unread.
        return Failure::new(Reason::RequestMalformed, error.to_string());
    }
    let mut all = messages.into_iter().enumerate();
    let unreadable = all.find_map(|(index, bytes)| check(bytes, call, &call.place(index)).err());
    unreadable.unwrap_or_else(|| match stop {
        Stop::Refused(failure) => *failure,
        Stop::Malformed(error) => Failure::new(Reason::RequestMalformed, error.to_string()),
    })
}

/// Checks that a request is a valid message within the limit of treatments.
fn check(bytes: &[u8], call: &Call<'_>, place: &Place) -> Result<(), Failure> {
    let max = call.limits.max_treatments;
    refuse_too_many(count_treatments(bytes), max, "treatments", place)?;
    schema::REQUEST.validate(bytes, MAX_DEPTH).map_err(|error| place.undecodable(error))
}

/// The number of treatments, up to the first invalid byte.
fn count_treatments(message: &[u8]) -> usize {
    let (mut rest, mut count) = (Reader::new(message), 0);
    while let Ok((number, wire_type)) = rest.key() {
        if rest.skip(number, wire_type, MAX_DEPTH).is_err() {
            break;
        }
        count += usize::from(number == 6 && wire_type == WireType::Bytes);
    }
    count
}
