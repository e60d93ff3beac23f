//! Limits on the size of a call.

use outrigger_core::{DType, Failure, Reason};

use crate::{
    metadata::Entity,
    meter::Meter,
    place::Place,
    plan::{InputPlan, Join, Plan},
};

/// The number of columns of a table that may be unknown to the model. Each column takes some
/// memory, even if it is empty.
const STRANGE_COLUMNS: usize = 4096;

/// The memory of a traced call, as a multiple of its tensors: beside them the origins of all values,
/// the messages of both, and the encoded answer.
const TRACED: u64 = 12;

/// The limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Treatments per user; 5000 by default.
    pub max_treatments: usize,
    /// Users per call; 64 by default.
    pub max_users: usize,
    /// Total bytes of all tensors of a call, padding included; 256 MiB by default.
    pub max_tensor_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_treatments: 5000, max_users: 64, max_tensor_bytes: 256 << 20 }
    }
}

/// Refuses a call without users or with too many.
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

/// Refuses a request with too many treatments.
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

/// The maximum number of table columns for a model with this number of treatment
/// features.
pub(crate) fn max_columns(features: usize) -> usize {
    features + STRANGE_COLUMNS
}

/// Refuses a table with too many columns.
pub(crate) fn refuse_columns(count: usize, max: usize, place: &Place) -> Result<(), Failure> {
    if count <= max {
        return Ok(());
    }
    Err(place.malformed("treatment_table", format!("{count} columns, at most {max} are allowed")))
}

/// The most bytes of a row in a tensor. A row of lists also takes the places of its lists, and its
/// number of elements; an id has a weight.
fn row_size(input: &InputPlan) -> u128 {
    let elements = |count: usize| count as u128 * element_size(input.dtype);
    if input.lengths.is_none() {
        return elements(input.width);
    }
    let most: usize = input.columns.iter().map(|column| column.most).sum();
    let weights = if input.weights.is_some() { most * size_of::<f32>() } else { 0 };
    let places = input.width * size_of::<std::ops::Range<usize>>() + size_of::<i64>();
    elements(most) + (weights + places) as u128
}

/// The most bytes of a joined row in a tensor.
fn joined_size(join: &Join) -> u128 {
    let weight = if join.weights.is_some() { size_of::<f32>() } else { 0 };
    let length = if join.lengths.is_some() { size_of::<i64>() } else { 0 };
    join.width as u128 * (element_size(join.dtype) + weight as u128) + length as u128
}

fn element_size(dtype: DType) -> u128 {
    dtype.size().unwrap_or(size_of::<bytes::Bytes>()) as u128
}

/// Refuses tensors of `size` bytes that a caller gives as they are, if they are over the limit.
pub(crate) fn check_given(size: usize, limits: &Limits) -> Result<(), Failure> {
    let most = limits.max_tensor_bytes;
    if size <= most {
        return Ok(());
    }
    let message = format!("the rows take {size} bytes of tensors, at most {most} are allowed");
    Err(Failure::new(Reason::TooLarge, message))
}

/// Refuses a call whose padded tensors would take too much memory, before they are
/// allocated.
pub(crate) fn check_size(
    plan: &Plan,
    counts: impl ExactSizeIterator<Item = usize>,
    limits: &Limits,
    (traced, meter): (bool, &dyn Meter),
) -> Result<(), Failure> {
    let users = counts.len() as u128;
    let (treatments, rows) = counts.fold((0, 0), |(most, all): (u128, u128), count| {
        (most.max(count as u128), all + count as u128)
    });
    let padded = |input: &InputPlan| {
        let rows = if input.entity == Entity::Treatment { users * treatments } else { users };
        rows * row_size(input)
    };
    let joined = |join: &Join| rows * joined_size(join);
    let total: u128 = match plan.joins.as_slice() {
        [] => plan.inputs.iter().map(padded).sum(),
        joins => joins.iter().map(joined).sum(),
    };
    if total <= limits.max_tensor_bytes as u128 {
        let copies = if traced { TRACED } else { 1 };
        return meter.admit(u64::try_from(total).unwrap_or(u64::MAX).saturating_mul(copies));
    }
    let message = format!(
        "{users} users of up to {treatments} treatments take {total} bytes of tensors, at most {} are allowed",
        limits.max_tensor_bytes
    );
    Err(Failure::new(Reason::TooLarge, message))
}
