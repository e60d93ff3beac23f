//! Explain: the exact tensors of a call, and the origin of each value in them.

mod contributions;
mod json;

use std::{ops::Range, slice};

use bytes::Bytes;
use outrigger_core::{Content, Failure, Tensor};
use outrigger_proto::outrigger::v1::{
    ExplainResponse, ExplainedColumn, ExplainedTensor, ValueOrigin,
};

use crate::{
    call::{Call, Trace},
    limits::{Limits, check_users},
    metadata::{Feature, Input},
    pack::{Metered, pack_traced},
    packed::{Packed, UserRows},
    plan::Plan,
    transcode::{self, Request},
};

impl Metered<'_> {
    /// Packs encoded requests as [`Plan::pack`] does and returns each request's part of
    /// the tensors: `[1, …]` of the engine's `[B, …]`, padding included; for joined
    /// tensors, the request's rows. `model` is left unset.
    ///
    /// # Errors
    /// As [`Plan::pack`], and those of the meter.
    pub fn explain(
        self,
        requests: &[&[u8]],
        limits: &Limits,
    ) -> Result<Vec<ExplainResponse>, Failure> {
        let Self { plan, meter } = self;
        let call = Call { prefixed: requests.len() > 1, traced: true, meter, ..Call::new(limits) };
        let (packed, trace) = pack_traced(plan, requests, &call)?;
        Ok(users(plan, &packed, &trace))
    }

    /// As [`Self::explain`], for one request that has already been split into parts within its
    /// limits. Returns the packed tensors too.
    ///
    /// # Errors
    /// As there.
    pub fn explain_request(
        self,
        request: &Request<'_>,
    ) -> Result<(ExplainResponse, Packed), Failure> {
        check_users(1, &request.limits)?;
        let call = Call { traced: true, meter: self.meter, ..Call::new(&request.limits) };
        let packed = transcode::pack_requests(self.plan, slice::from_ref(request), &call);
        let (packed, trace) = packed?;
        Ok((self.plan.explain_user(0, &packed, &trace), packed))
    }
}

impl Plan {
    fn explain_user(&self, user: usize, packed: &Packed, trace: &Trace) -> ExplainResponse {
        let share = Share::of(user, self, packed);
        let inputs = || self.metadata.inputs.iter().zip(&packed.tensors).zip(&trace.origins);
        let lengths = |input: &Input| packed.tensor(input.lengths.as_ref()?);
        let mut tensors = Vec::with_capacity(packed.tensors.len());
        for ((input, tensor), origins) in inputs() {
            let elements = match lengths(input) {
                Some(lengths) => share.elements(lengths),
                None => share.range(elements(tensor)),
            };
            tensors.push(explain(input, tensor, origins, &share, elements));
        }
        let of_lists =
            inputs().filter_map(|((input, _), origins)| Some((lengths(input)?, origins)));
        tensors.extend(of_lists.map(|(tensor, origins)| explain_lengths(tensor, origins, &share)));
        ExplainResponse {
            model: None,
            tensors,
            request_id: packed.users[user].request_id.to_string(),
            unknown_features: trace.unknown[user].clone(),
            treatment_errors: packed.users[user].errors.clone(),
            contributions: None,
        }
    }
}

/// Each user's part of a packed call.
pub(crate) fn users(plan: &Plan, packed: &Packed, trace: &Trace) -> Vec<ExplainResponse> {
    (0..packed.users.len()).map(|user| plan.explain_user(user, packed, trace)).collect()
}

/// The rows of a tensor that belong to one user.
struct Share {
    before: usize,
    rows: usize,
    all: usize,
}

impl Share {
    fn of(user: usize, plan: &Plan, packed: &Packed) -> Self {
        if plan.joins.is_empty() {
            return Self { before: user, rows: 1, all: packed.users.len() };
        }
        let kept = |users: &[UserRows]| users.iter().map(UserRows::kept).sum();
        let (before, rows) = (kept(&packed.users[..user]), packed.users[user].kept());
        Self { before, rows, all: kept(&packed.users) }
    }

    /// The user's range among `parts` items that are divided evenly over all rows.
    fn range(&self, parts: usize) -> Range<usize> {
        let each = parts.checked_div(self.all).unwrap_or(0);
        self.before * each..(self.before + self.rows) * each
    }

    /// The user's elements among those of all lists, which have these lengths.
    fn elements(&self, lengths: &Tensor) -> Range<usize> {
        let Content::Bytes(bytes) = &lengths.content else { return 0..0 };
        let (lengths, _) = bytes.as_chunks();
        let sum = |lengths: &[[u8; 8]]| {
            let length = |bytes: &[u8; 8]| usize::try_from(u64::from_le_bytes(*bytes));
            lengths.iter().map(|bytes| length(bytes).expect("sizes are limited")).sum::<usize>()
        };
        let rows = self.range(lengths.len());
        let before = sum(&lengths[..rows.start]);
        before..before + sum(&lengths[rows])
    }
}

/// The number of elements of a tensor.
fn elements(tensor: &Tensor) -> usize {
    match &tensor.content {
        Content::Bytes(bytes) => bytes.len() / tensor.dtype.size().unwrap_or(1),
        Content::Strings(texts) => texts.len(),
    }
}

/// Explains these elements of an input's tensor.
fn explain(
    input: &Input,
    tensor: &Tensor,
    origins: &[i32],
    share: &Share,
    elements: Range<usize>,
) -> ExplainedTensor {
    let mut shape = tensor.shape.clone();
    let first = if input.lengths.is_some() { elements.len() } else { share.rows };
    shape[0] = i64::try_from(first).expect("sizes are limited");
    let (content, texts) = part(tensor, elements);
    ExplainedTensor {
        name: tensor.name.as_ref().to_owned(),
        dtype: tensor.dtype.as_str().to_owned(),
        shape,
        content,
        texts,
        columns: columns(input),
        origins: origins[share.range(origins.len())].to_vec(),
    }
}

/// These elements of a tensor.
fn part(tensor: &Tensor, elements: Range<usize>) -> (Bytes, Vec<Bytes>) {
    match &tensor.content {
        Content::Bytes(bytes) => {
            let size = tensor.dtype.size().unwrap_or(1);
            (bytes.slice(size * elements.start..size * elements.end), Vec::new())
        }
        Content::Strings(texts) => (Bytes::new(), texts[elements].to_vec()),
    }
}

/// Explains the lengths of the lists that have these origins.
fn explain_lengths(tensor: &Tensor, origins: &[i32], share: &Share) -> ExplainedTensor {
    let mut shape = tensor.shape.clone();
    shape[0] = i64::try_from(share.rows).expect("sizes are limited");
    let padding = i32::from(ValueOrigin::Padding);
    let origin = |of_list: &i32| match *of_list {
        of_list if of_list == padding => padding,
        _ => ValueOrigin::Computed.into(),
    };
    ExplainedTensor {
        name: tensor.name.as_ref().to_owned(),
        dtype: tensor.dtype.as_str().to_owned(),
        shape,
        content: part(tensor, share.range(elements(tensor))).0,
        texts: Vec::new(),
        columns: Vec::new(),
        origins: origins[share.range(origins.len())].iter().map(origin).collect(),
    }
}

fn columns(input: &Input) -> Vec<ExplainedColumn> {
    let mut offset = 0;
    let mut column = |feature: &Feature| {
        let length = u32::try_from(feature.length).expect("lengths are bounded");
        let explained =
            ExplainedColumn { feature: feature.name.as_ref().to_owned(), offset, length };
        offset += length;
        explained
    };
    input.features.iter().map(&mut column).collect()
}

#[cfg(test)]
mod tests;
