//! Packing without intermediate messages: from the bytes of requests to the bytes of
//! tensors.
//!
//! A request is first split into its parts ([`request`]), so that its size is known; then
//! every value is copied from its place in the request to its place in the tensor, by the
//! fastest method that applies:
//!
//! 1. A treatment with the same keys in the same order as the one before: its keys are
//!    known, and neighbouring numbers are compared as a block ([`template`]).
//! 2. Other treatments: the keys are predicted in the order of the first one ([`order`]),
//! 3. or looked up in a hash table ([`crate::keys`]).
//! 4. Tables: columns of numbers are copied as a block ([`columns`]).
//!
//! Every method gives the same result as decoding the message with prost; values in an
//! unusual encoding are merged by a general method ([`merged`]).

mod batch;
mod columns;
mod entry;
mod lasts;
mod lists;
mod merged;
mod object;
mod order;
mod packer;
mod part;
mod prefetch;
mod request;
mod routing;
mod row;
mod schema;
mod stop;
mod table;
mod template;
mod texts;
mod unknown;

use outrigger_core::Failure;
use smallvec::SmallVec;

use crate::{
    call::{Call, Trace},
    limits::check_size,
    options::Options,
    packed::Packed,
    place::Place,
    plan::Plan,
};
use packer::Packer;
use part::Part;
use stop::{Stop, refused};

pub use batch::requests;
pub use request::Request;
pub use routing::{Routing, routing_key};
pub(crate) use unknown::Unknown;

/// Packs a call; the trace is empty unless the call is traced.
///
/// # Errors
/// As [`Plan::pack`]. A request that is too large or not a valid message takes precedence over any
/// other error of the call.
pub(crate) fn pack(
    plan: &Plan,
    messages: &[&[u8]],
    call: &Call<'_>,
) -> Result<(Packed, Trace), Failure> {
    let scanned = messages.iter().map(|message| Request::scan(message, call.limits));
    let requests: Result<SmallVec<[_; 1]>, _> = scanned.collect();
    let requests = requests.map_err(|error| refused(messages.iter().copied(), call, error))?;
    pack_requests(plan, &requests, call)
}

/// As [`pack`], for requests that have already been split into parts.
pub(crate) fn pack_requests(
    plan: &Plan,
    requests: &[Request<'_>],
    call: &Call<'_>,
) -> Result<(Packed, Trace), Failure> {
    let packer = read_all(plan, requests, call);
    let messages = || requests.iter().map(|request| request.message);
    packer.map(Packer::finish).map_err(|stop| refused(messages(), call, stop))
}

/// Reads all requests of a call into a packer.
fn read_all<'p, 'r>(
    plan: &'p Plan,
    requests: &[Request<'r>],
    call: &Call<'p>,
) -> Result<Packer<'p, 'r>, Stop> {
    let mut parts = Vec::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        parts.push(Part::read(request, plan, call.limits, &call.place(index))?);
    }
    check_size(plan, parts.iter().map(|part| part.count), call.limits, (call.traced, call.meter))?;
    // A shared table usually becomes a tensor without a copy, so it needs no room.
    let copied = |part: &&Part<'_, '_>| part.request.shared.is_none() || part.table.is_none();
    let rows = parts.iter().filter(copied).map(|part| part.count).sum();
    let mut packer = Packer::new(plan, call, parts.len(), rows);
    for (index, part) in parts.into_iter().enumerate() {
        if packer.faults.room() == 0 {
            break;
        }
        let added = add(&mut packer, part, call, &call.place(index));
        // The faults that were found before another failure are reported in its place.
        if packer.faults.is_empty() {
            added?;
        } else if added.is_err() {
            break;
        }
    }
    packer.faults.check()?;
    Ok(packer)
}

/// Packs one request of a call.
fn add<'p, 'r>(
    packer: &mut Packer<'p, 'r>,
    mut part: Part<'_, 'r>,
    call: &Call<'p>,
    place: &Place,
) -> Result<(), Stop> {
    call.meter.proceed()?;
    let mut unknown = Unknown::new(call.traced);
    part.match_names(packer.plan, &mut unknown, place)?;
    let (own, has_model) = (part.request.options.as_ref(), part.request.model.is_some());
    let options = Options::read(own, has_model, call, packer.plan, place)?;
    packer.add(&mut part, unknown, options, place)
}

#[cfg(test)]
mod tests;
