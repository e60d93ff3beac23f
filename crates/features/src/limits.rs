//! How much a call may ask for.

use outrigger_core::{Failure, Reason};

use crate::{
    metadata::Entity,
    place::Place,
    plan::{InputPlan, Plan},
};

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
