//! From the bytes of requests to the bytes of tensors, with nothing in between.
//!
//! A request is first taken apart ([`request`]), so that its size is known;
//! then every value goes from where it stands on the wire to where it belongs
//! in its tensor. Of the ways to do that the fastest that fits is taken:
//!
//! 1. A treatment with the keys of the one before, in its order: what comes is
//!    known, numbers next to each other are compared as a whole ([`template`]).
//! 2. Else its keys are expected in the order of the first one's ([`order`]),
//! 3. or looked up ([`keys`]).
//! 4. Columns of numbers are copied as a block ([`columns`]).
//!
//! All of them give what decoding the message with prost would give; what is
//! written in unusual ways is put together in general ([`merged`]).

mod batch;
mod columns;
mod entry;
mod fields;
mod keys;
mod lasts;
mod lists;
mod merged;
mod object;
mod order;
mod packer;
mod prefetch;
mod request;
mod routing;
mod row;
mod schema;
mod table;
mod tally;
mod template;
mod texts;
mod unknown;
mod wire;

use outrigger_core::{Failure, Reason};
use smallvec::SmallVec;

use crate::{
    Limits, Packed, Plan,
    pack::{Call, Options, Trace, check_size, max_columns, refuse_columns, refuse_too_many},
    request::Place,
};
use merged::Merged;
use packer::Packer;
use request::User;
use table::{Source, Table};

pub use batch::requests;
pub(crate) use fields::Fields;
pub(crate) use keys::Keys;
pub(crate) use object::element;
pub use request::Request;
pub use routing::{Routing, routing_key};
pub(crate) use unknown::Unknown;
pub(crate) use wire::Reader;
use wire::{MAX_DEPTH, Malformed};

/// One request of a call, its table and object taken apart as well.
#[derive(Debug)]
struct Part<'q, 'a> {
    request: &'q Request<'a>,
    /// The features of a user that is an object, by their slots.
    object: Vec<(usize, Merged<'a>)>,
    table: Option<Table<'a>>,
    /// For every slot, its column of the table.
    sources: Vec<Option<Source>>,
    /// Number of treatments.
    count: usize,
}

/// Why a call cannot be packed.
#[derive(Debug)]
enum Stop {
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

/// Packs a call; the trace is empty unless the call is traced.
///
/// # Errors
/// As [`Plan::pack`]. A request that is too long or cannot be read comes before
/// anything else that is wrong with any of them.
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

/// [`pack`] for requests that have been taken apart.
pub(crate) fn pack_requests(
    plan: &Plan,
    requests: &[Request<'_>],
    call: &Call<'_>,
) -> Result<(Packed, Trace), Failure> {
    let packer = read_all(plan, requests, call);
    let messages = || requests.iter().map(|request| request.message);
    packer.map(Packer::finish).map_err(|stop| refused(messages(), call, stop))
}

/// Why a call is refused. Work stopped somewhere: what comes after has not been looked
/// at yet.
fn refused<'r>(
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
    refuse_too_many(request::count_treatments(bytes), max, "treatments", place)?;
    schema::REQUEST.validate(bytes, MAX_DEPTH).map_err(|error| place.undecodable(error))
}

/// A packer that has all requests of a call.
fn read_all<'p, 'r>(
    plan: &'p Plan,
    requests: &[Request<'r>],
    call: &Call<'p>,
) -> Result<Packer<'p, 'r>, Stop> {
    let mut parts = Vec::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        parts.push(Part::read(request, plan, call.limits, &call.place(index))?);
    }
    check_size(plan, parts.iter().map(|part| part.count), call.limits)?;
    // A table is mostly taken as a whole.
    let copied = |part: &&Part<'_, '_>| part.request.shared.is_none() || part.table.is_none();
    let rows = parts.iter().filter(copied).map(|part| part.count).sum();
    let mut packer = Packer::new(plan, call, parts.len(), rows);
    for (index, mut part) in parts.into_iter().enumerate() {
        let (place, mut unknown) = (call.place(index), Unknown::new(call.traced));
        part.match_names(plan, &mut unknown, &place)?;
        let (own, has_model) = (part.request.options.as_ref(), part.request.model.is_some());
        let options = Options::read(own, has_model, call.batch, plan, &place)?;
        packer.add(&mut part, unknown, options, &place)?;
    }
    Ok(packer)
}

impl<'q, 'a> Part<'q, 'a> {
    /// Takes a request's table apart and counts its treatments.
    fn read(
        request: &'q Request<'a>,
        plan: &Plan,
        limits: &Limits,
        place: &Place,
    ) -> Result<Self, Stop> {
        let max = limits.max_treatments;
        let (object, table, sources, count) = (Vec::new(), None, Vec::new(), request.sent);
        refuse_too_many(count, max, "treatments", place)?;
        let Some(parts) = &request.table else {
            return Ok(Self { request, object, table, sources, count });
        };
        if count > 0 {
            let message = "treatments and treatment_table exclude each other";
            return Err(place.malformed("treatment_table", message).into());
        }
        let max_columns = max_columns(plan.fields.treatment.len());
        let table = Table::read(parts, max, max_columns)?;
        refuse_columns(table.columns(), max_columns, place)?;
        let count = table.count(place)?;
        refuse_too_many(count, max, "treatment_table", place)?;
        Ok(Self { request, object, table: Some(table), sources, count })
    }

    /// Finds the features of an object and of a table, whose names must be different,
    /// and checks the sizes of a table's columns.
    fn match_names(
        &mut self,
        plan: &Plan,
        unknown: &mut Unknown,
        place: &Place,
    ) -> Result<(), Stop> {
        if let User::Object(parts) = &self.request.user {
            self.object = object::features(parts, &plan.fields.user, unknown, place)?;
        }
        if let Some(table) = &mut self.table {
            self.sources = table.sources(self.count, &plan.fields.treatment, unknown, place)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
