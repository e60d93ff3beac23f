//! Why packing stopped.

use outrigger_core::{Failure, Reason};

use super::schema;
use crate::{
    call::Call,
    limits::refuse_too_many,
    place::Place,
    wire::{MAX_DEPTH, Malformed, Reader, WireType},
};

/// Why a call cannot be packed.
#[derive(Debug)]
pub(super) enum Stop {
    /// A request's bytes are no request. Which one, and why, is found out again.
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

/// Why a call is refused. Work stopped somewhere: what comes after has not been looked
/// at yet.
pub(super) fn refused<'r>(
    messages: impl IntoIterator<Item = &'r [u8]>,
    call: &Call<'_>,
    stop: impl Into<Stop>,
) -> Failure {
    let mut all = messages.into_iter().enumerate();
    let unreadable = all.find_map(|(index, bytes)| check(bytes, call, &call.place(index)).err());
    unreadable.unwrap_or_else(|| match stop.into() {
        Stop::Refused(failure) => *failure,
        Stop::Malformed(error) => Failure::new(Reason::RequestMalformed, error.to_string()),
    })
}

/// Whether a request is a message, of no more treatments than are allowed.
fn check(bytes: &[u8], call: &Call<'_>, place: &Place) -> Result<(), Failure> {
    let max = call.limits.max_treatments;
    refuse_too_many(count_treatments(bytes), max, "treatments", place)?;
    schema::REQUEST.validate(bytes, MAX_DEPTH).map_err(|error| place.undecodable(error))
}

/// How many treatments there are, up to where the bytes are no message.
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
