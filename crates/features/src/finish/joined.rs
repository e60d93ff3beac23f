//! Joined tensors: one row per treatment, all users concatenated, no padding.

use bytes::Bytes;
use outrigger_core::{Content, Tensor};

use crate::{
    column::Buffer,
    metadata::Entity,
    plan::{Join, Plan},
};

/// Neighbouring elements that are copied together from every row of a part.
struct Piece<'p, T> {
    elements: &'p [T],
    /// Whether the part has one row per user instead of one per treatment.
    of_user: bool,
    /// Elements per row of the part.
    stride: usize,
    start: usize,
    end: usize,
}

/// Builds the joined tensors. `kept` is the number of packed treatments of each user.
pub(super) fn tensors(plan: &Plan, buffers: Vec<Buffer>, kept: &[usize]) -> Vec<Tensor> {
    let parts: Vec<_> = buffers.into_iter().map(Buffer::into_content).collect();
    plan.joins.iter().map(|join| tensor(plan, join, &parts, kept)).collect()
}

/// The origins of the tensors' values.
pub(super) fn origins(plan: &Plan, origins: &[Vec<i32>], kept: &[usize]) -> Vec<Vec<i32>> {
    let of_join = |join: &Join| {
        let pieces = join.sources.iter().map(|source| Piece {
            elements: &origins[source.input],
            of_user: of_user(plan, source.input),
            stride: plan.inputs[source.input].columns.len(),
            start: source.column,
            end: source.column + 1,
        });
        join_rows(&pieces.collect::<Vec<_>>(), kept)
    };
    plan.joins.iter().map(of_join).collect()
}

fn tensor(plan: &Plan, join: &Join, parts: &[Content], kept: &[usize]) -> Tensor {
    let content = match join.dtype.size() {
        Some(size) => {
            let joined = join_rows(&pieces(plan, join, size, |input| bytes(&parts[input])), kept);
            Content::Bytes(joined.into())
        }
        None => {
            Content::Strings(join_rows(&pieces(plan, join, 1, |input| texts(&parts[input])), kept))
        }
    };
    let sizes = [kept.iter().sum(), join.width];
    let shape = sizes.map(|size| i64::try_from(size).expect("sizes are limited")).into();
    Tensor { name: join.tensor.clone(), dtype: join.dtype, shape, content }
}

/// The pieces that a tensor's rows are joined from, where an element is `size` items of
/// its part.
fn pieces<'p, T>(
    plan: &Plan,
    join: &Join,
    size: usize,
    elements: impl Fn(usize) -> &'p [T],
) -> Vec<Piece<'p, T>> {
    let runs = join.runs().into_iter().map(|run| Piece {
        elements: elements(run.input),
        of_user: of_user(plan, run.input),
        stride: size * plan.inputs[run.input].width,
        start: size * run.start,
        end: size * run.end,
    });
    runs.collect()
}

fn of_user(plan: &Plan, input: usize) -> bool {
    plan.inputs[input].entity == Entity::User
}

fn join_rows<T: Clone>(pieces: &[Piece<'_, T>], kept: &[usize]) -> Vec<T> {
    let width: usize = pieces.iter().map(|piece| piece.end - piece.start).sum();
    let mut joined = Vec::with_capacity(width * kept.iter().sum::<usize>());
    let mut rows = 0;
    for (user, count) in kept.iter().enumerate() {
        for row in rows..rows + count {
            for piece in pieces {
                let at = piece.stride * if piece.of_user { user } else { row };
                joined.extend_from_slice(&piece.elements[at + piece.start..at + piece.end]);
            }
        }
        rows += count;
    }
    joined
}

fn bytes(content: &Content) -> &[u8] {
    match content {
        Content::Bytes(bytes) => bytes,
        Content::Strings(_) => &[],
    }
}

fn texts(content: &Content) -> &[Bytes] {
    match content {
        Content::Strings(texts) => texts,
        Content::Bytes(_) => &[],
    }
}

#[cfg(test)]
mod tests;
