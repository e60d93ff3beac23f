//! The last step of packing: pads or joins the written rows and shapes the tensors.

mod joined;
mod lists;
mod sparse;

use outrigger_core::Tensor;
use outrigger_proto::outrigger::v1::ValueOrigin;

use crate::{
    column::Buffer,
    metadata::Entity,
    plan::{InputPlan, Plan},
};
use sparse::SparseNames;

/// Builds the tensors. `kept` is the number of packed treatments of each user, and
/// `treatments` the largest of them.
pub(crate) fn tensors(
    plan: &Plan,
    buffers: Vec<Buffer>,
    kept: &[usize],
    treatments: usize,
) -> Vec<Tensor> {
    if !plan.joins.is_empty() {
        return joined::tensors(plan, buffers, kept);
    }
    let mut of_lists = Vec::new();
    let inputs = plan.inputs.iter().zip(buffers);
    let mut tensors: Vec<_> = inputs
        .map(|(input, buffer)| {
            let buffer = pad(input, buffer, kept, treatments);
            finish_tensor(input, buffer, (kept.len(), treatments), &mut of_lists)
        })
        .collect();
    tensors.append(&mut of_lists);
    tensors
}

/// The origins of all values, padded or joined like the tensors; empty if the call is not
/// traced.
pub(crate) fn origins(
    plan: &Plan,
    origins: Vec<Vec<i32>>,
    kept: &[usize],
    treatments: usize,
) -> Vec<Vec<i32>> {
    if !plan.joins.is_empty() && !origins.is_empty() {
        return joined::origins(plan, &origins, kept);
    }
    let inputs = plan.inputs.iter().zip(origins);
    inputs.map(|(input, origins)| finish_origins(input, origins, kept, treatments)).collect()
}

/// True if some users have fewer rows of this input than others.
fn needs_padding(input: &InputPlan, kept: &[usize], treatments: usize) -> bool {
    input.entity == Entity::Treatment && kept.iter().any(|count| *count != treatments)
}

/// Gives each user as many rows as the others, if the input's rows are treatments.
fn pad(input: &InputPlan, buffer: Buffer, kept: &[usize], treatments: usize) -> Buffer {
    if !needs_padding(input, kept, treatments) {
        return buffer;
    }
    let runs: Vec<_> = kept.iter().map(|count| count * input.width).collect();
    buffer.pad(&runs, treatments * input.width)
}

/// Shapes the tensor of an input; those with the weights and the lengths of its lists are added to
/// `of_lists`.
fn finish_tensor(
    input: &InputPlan,
    buffer: Buffer,
    (users, treatments): (usize, usize),
    of_lists: &mut Vec<Tensor>,
) -> Tensor {
    let rows = || lists::rows(input, users, treatments);
    if let (Some(names), Buffer::Lists(lists)) = (SparseNames::of(input), &buffer) {
        let [ids, weights, lengths] = sparse::tensors(names, lists, input.width, rows());
        of_lists.extend([weights, lengths]);
        return ids;
    }
    if let (Some(name), Buffer::Lists(lists)) = (&input.lengths, &buffer) {
        of_lists.push(lists::lengths(name, lists, rows()));
    }
    let content = buffer.into_content();
    let shape = match &input.lengths {
        None => input.shape(users, treatments),
        Some(_) => lists::shape(&content, input.dtype),
    };
    Tensor { name: input.tensor.clone(), dtype: input.dtype, shape, content }
}

fn finish_origins(
    input: &InputPlan,
    origins: Vec<i32>,
    kept: &[usize],
    treatments: usize,
) -> Vec<i32> {
    if needs_padding(input, kept, treatments) {
        pad_origins(&origins, kept, treatments, input.columns.len())
    } else {
        origins
    }
}

fn pad_origins(origins: &[i32], kept: &[usize], treatments: usize, columns: usize) -> Vec<i32> {
    let mut padded = Vec::with_capacity(kept.len() * treatments * columns);
    let mut rest = origins;
    for count in kept {
        let (head, tail) = rest.split_at(count * columns);
        padded.extend_from_slice(head);
        let padding = (treatments - count) * columns;
        padded.extend(std::iter::repeat_n(i32::from(ValueOrigin::Padding), padding));
        rest = tail;
    }
    padded
}
