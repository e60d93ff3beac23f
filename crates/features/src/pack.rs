//! Encoding: the rows of all requests of a call become the engine's tensors.

pub(crate) mod finish;
mod ids;
mod options;

use std::slice;

use outrigger_core::{Failure, Reason, Tensor};
use outrigger_proto::outrigger::v1::{ResponseOptions, TreatmentError};

use crate::{
    Plan,
    metadata::{Entity, OutputKind},
    plan::InputPlan,
    request::Place,
    transcode::{self, Request},
};
pub use ids::Ids;
pub(crate) use options::Options;

/// So many columns of a table may hold what the model does not name. Each takes
/// some memory, even if there is nothing in it.
const STRANGE_COLUMNS: usize = 4096;

/// How much one call may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Treatments a user; 5000 by default.
    pub max_treatments: usize,
    /// Users a call; 64 by default.
    pub max_users: usize,
    /// Bytes of all tensors of a call together, padding included; 256 MiB by
    /// default.
    pub max_tensor_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_treatments: 5000, max_users: 64, max_tensor_bytes: 256 << 20 }
    }
}

/// How many values of a call were not simply sent and known. A vector counts
/// once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeatureCounts {
    /// Absent: filled with the default or NaN.
    pub missing: u64,
    /// Sent, but not named by the model.
    pub unknown: u64,
    /// Sent, but not in the vocabulary.
    pub out_of_vocabulary: u64,
}

/// The tensors of a call, and what is needed to answer it. But for the numbers of a table,
/// which may become a tensor where they stand, nothing of it is a part of the requests: half
/// a megabyte of key-value maps may go once it has become 80 KB of tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// One tensor for each input of metadata.json, in its order.
    pub tensors: Vec<Tensor>,
    /// The users, in the order of the requests: B of them.
    pub users: Vec<UserRows>,
    /// What there is to count.
    pub counts: FeatureCounts,
    /// T: the most treatments that any user kept.
    pub treatments: usize,
    pub(crate) single_wanted: bool,
}

/// One user's share of a packed call.
#[derive(Debug, Clone, PartialEq)]
pub struct UserRows {
    /// The request's id, to be echoed.
    pub request_id: Box<str>,
    /// How many treatments the request has.
    pub requested: usize,
    /// The treatments left out, in the order of the request; all others are
    /// packed.
    pub errors: Vec<TreatmentError>,
    /// The ids of the treatments packed, if the response shall have them.
    pub ids: Option<Ids>,
    /// How many of the best treatments to return; 0 for all.
    pub top_k: usize,
    /// The outputs to return, as positions in metadata.json; the first is the
    /// score.
    pub outputs: Vec<usize>,
}

impl UserRows {
    /// How many treatments were packed.
    pub fn kept(&self) -> usize {
        self.requested - self.errors.len()
    }

    /// The positions in the request of the treatments packed, in order.
    pub(crate) fn positions(&self) -> Vec<u32> {
        let mut left_out = self.errors.iter().map(|error| error.index).peekable();
        let all = 0..u32::try_from(self.requested).expect("treatments are limited");
        all.filter(|index| left_out.next_if_eq(index).is_none()).collect()
    }
}

impl Packed {
    /// Whether the engine has anything to compute: false if no user has a
    /// treatment and no `single` output is asked for.
    pub fn needs_engine(&self) -> bool {
        self.treatments > 0 || self.single_wanted
    }
}

/// What a call is packed with, beside its requests.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) limits: &'a Limits,
    /// Whether field paths begin with `requests[i].`.
    pub(crate) prefixed: bool,
    /// The options of a batch, which hold for all its requests.
    pub(crate) batch: Option<&'a ResponseOptions>,
    /// Whether to keep the origin of every value and the names of unknown
    /// features.
    pub(crate) traced: bool,
}

impl<'a> Call<'a> {
    pub(crate) fn new(limits: &'a Limits) -> Self {
        Self { limits, prefixed: false, batch: None, traced: false }
    }

    pub(crate) fn place(&self, index: usize) -> Place {
        if self.prefixed { Place::in_batch(index) } else { Place::default() }
    }
}

/// What only Explain wants to know of a packed call.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// For each input, the `ValueOrigin`s of its rows; padded as the tensor is.
    pub(crate) origins: Vec<Vec<i32>>,
    /// For each user, the names of unknown features, sorted.
    pub(crate) unknown: Vec<Vec<String>>,
}

pub(crate) fn pack(plan: &Plan, requests: &[&[u8]], call: &Call<'_>) -> Result<Packed, Failure> {
    pack_traced(plan, requests, call).map(|(packed, _)| packed)
}

/// Packs one request, which has been taken apart.
pub(crate) fn pack_request(plan: &Plan, request: &Request<'_>) -> Result<Packed, Failure> {
    check_users(1, &request.limits)?;
    let requests = slice::from_ref(request);
    let packed = transcode::pack_requests(plan, requests, &Call::new(&request.limits));
    packed.map(|(packed, _)| packed)
}

/// Packs a call; the trace is empty unless the call is traced.
pub(crate) fn pack_traced(
    plan: &Plan,
    requests: &[&[u8]],
    call: &Call<'_>,
) -> Result<(Packed, Trace), Failure> {
    check_users(requests.len(), call.limits)?;
    transcode::pack(plan, requests, call)
}

/// Refuses a call of no user, or of too many.
pub(crate) fn check_users(users: usize, limits: &Limits) -> Result<(), Failure> {
    let message = match users {
        0 => "no request in the batch".to_owned(),
        _ if users > limits.max_users => {
            format!("{users} requests in one call, at most {} are allowed", limits.max_users)
        }
        _ => return Ok(()),
    };
    Err(Failure::new(Reason::RequestMalformed, &message).violation("requests", message))
}

/// Refuses a request of too many treatments.
pub(crate) fn refuse_too_many(
    count: usize,
    max: usize,
    path: &str,
    place: &Place,
) -> Result<(), Failure> {
    if count <= max {
        return Ok(());
    }
    let message = format!("{count} treatments, at most {max} are allowed");
    Err(place.failure(Reason::TooManyTreatments, path, message))
}

/// The most columns of a table for a model of so many features of treatments.
pub(crate) fn max_columns(features: usize) -> usize {
    features + STRANGE_COLUMNS
}

/// Refuses a table of too many columns.
pub(crate) fn refuse_columns(count: usize, max: usize, place: &Place) -> Result<(), Failure> {
    if count <= max {
        return Ok(());
    }
    Err(place.malformed("treatment_table", format!("{count} columns, at most {max} are allowed")))
}

/// Refuses a call whose padded tensors would take too much memory, before
/// anything is allocated for them.
pub(crate) fn check_size(
    plan: &Plan,
    counts: impl ExactSizeIterator<Item = usize>,
    limits: &Limits,
) -> Result<(), Failure> {
    let users = counts.len() as u128;
    let treatments = counts.max().unwrap_or(0) as u128;
    let size = |input: &InputPlan| {
        let rows = if input.entity == Entity::Treatment { users * treatments } else { users };
        let element = input.dtype.size().unwrap_or(size_of::<bytes::Bytes>());
        rows * input.width as u128 * element as u128
    };
    let total: u128 = plan.inputs.iter().map(size).sum();
    if total <= limits.max_tensor_bytes as u128 {
        return Ok(());
    }
    let message = format!(
        "{users} users of up to {treatments} treatments take {total} bytes of tensors, at most {} are allowed",
        limits.max_tensor_bytes
    );
    Err(Failure::new(Reason::TooLarge, message))
}

/// Whether any of these outputs is `single`.
pub(crate) fn any_single(plan: &Plan, outputs: &[usize]) -> bool {
    outputs.iter().any(|index| plan.metadata.outputs[*index].kind == OutputKind::Single)
}

#[cfg(test)]
mod tests;
