//! The exact tensors of a call, and where each value in them came from.

use outrigger_core::{Content, Failure};
use outrigger_proto::outrigger::v1::{ExplainResponse, ExplainedColumn, ExplainedTensor};

use crate::{
    call::{Call, Trace},
    limits::Limits,
    pack,
    packed::Packed,
    plan::{InputPlan, Plan},
};

impl Plan {
    /// Packs encoded requests as [`Plan::pack`] does and returns, for each, its
    /// part of the tensors: `[1, …]` of what the engine would get as `[B, …]`,
    /// padding included. `model` is left unset.
    ///
    /// # Errors
    /// As [`Plan::pack`].
    pub fn explain(
        &self,
        requests: &[&[u8]],
        limits: &Limits,
    ) -> Result<Vec<ExplainResponse>, Failure> {
        let call = Call { prefixed: requests.len() > 1, traced: true, ..Call::new(limits) };
        let (packed, trace) = pack::pack_traced(self, requests, &call)?;
        Ok(users(self, &packed, &trace))
    }

    fn explain_user(&self, user: usize, packed: &Packed, trace: &Trace) -> ExplainResponse {
        let tensor = |(index, input): (usize, &InputPlan)| {
            explain_tensor(input, index, user, packed, &trace.origins[index])
        };
        ExplainResponse {
            model: None,
            tensors: self.inputs.iter().enumerate().map(tensor).collect(),
            request_id: packed.users[user].request_id.to_string(),
            unknown_features: trace.unknown[user].clone(),
            treatment_errors: packed.users[user].errors.clone(),
        }
    }
}

/// Each user's part of a packed call.
pub(crate) fn users(plan: &Plan, packed: &Packed, trace: &Trace) -> Vec<ExplainResponse> {
    (0..packed.users.len()).map(|user| plan.explain_user(user, packed, trace)).collect()
}

fn explain_tensor(
    input: &InputPlan,
    index: usize,
    user: usize,
    packed: &Packed,
    origins: &[i32],
) -> ExplainedTensor {
    let users = packed.users.len();
    let tensor = &packed.tensors[index];
    let mut shape = tensor.shape.clone();
    shape[0] = 1;
    let (content, texts) = match &tensor.content {
        Content::Bytes(bytes) => (bytes.slice(share(bytes.len(), users, user)), Vec::new()),
        Content::Strings(texts) => {
            (bytes::Bytes::new(), texts[share(texts.len(), users, user)].to_vec())
        }
    };
    ExplainedTensor {
        name: tensor.name.as_ref().to_owned(),
        dtype: tensor.dtype.as_str().to_owned(),
        shape,
        content,
        texts,
        columns: columns(input),
        origins: origins[share(origins.len(), users, user)].to_vec(),
    }
}

/// A user's equal share of a tensor's parts.
fn share(parts: usize, users: usize, user: usize) -> std::ops::Range<usize> {
    let each = parts / users;
    user * each..(user + 1) * each
}

fn columns(input: &InputPlan) -> Vec<ExplainedColumn> {
    let mut offset = 0;
    let mut column = |column: &crate::column::Column| {
        let length = u32::try_from(column.length).expect("lengths are bounded");
        let explained =
            ExplainedColumn { feature: column.feature.as_ref().to_owned(), offset, length };
        offset += length;
        explained
    };
    input.columns.iter().map(&mut column).collect()
}

#[cfg(test)]
mod tests;
