//! Joined tensors: one row per treatment, all users concatenated, no padding.

use bytes::Bytes;
use outrigger_core::{Content, Tensor};

use super::sparse::{SparseNames, SparseRows};
use crate::{
    column::{Buffer, RowLists},
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
    let mut of_lists = Vec::new();
    // The lists of sparse rows are joined as they are; other parts are tensors already.
    let part = |buffer| match buffer {
        Buffer::Lists(lists) => Part::Lists(lists),
        buffer => Part::Content(buffer.into_content()),
    };
    let parts: Vec<_> = buffers.into_iter().map(part).collect();
    let join = |join: &Join| match SparseNames::of_join(join) {
        None => tensor(plan, join, &parts, kept),
        Some(names) => {
            let [ids, weights, lengths] = sparse_tensors(plan, join, names, &parts, kept);
            of_lists.extend([weights, lengths]);
            ids
        }
    };
    let mut tensors: Vec<_> = plan.joins.iter().map(join).collect();
    tensors.append(&mut of_lists);
    tensors
}

/// The rows of an entity, of which joined rows consist.
enum Part {
    Content(Content),
    Lists(RowLists),
}

/// Builds the tensors of sparse rows: the ids of the user, then those of the treatment.
fn sparse_tensors(
    plan: &Plan,
    join: &Join,
    names: SparseNames<'_>,
    parts: &[Part],
    kept: &[usize],
) -> [Tensor; 3] {
    let entity = |part: usize| (lists(&parts[part]), plan.inputs[part].width);
    let [user, treatment] = join.parts.map(|part| part.map(entity));
    let count = |part: Option<(&RowLists, usize)>, row: usize| {
        part.map_or(0, |(lists, width)| lists.count(row, width))
    };
    let pairs = || row_pairs(kept);
    let ids = pairs().map(|(of_user, of_row)| count(user, of_user) + count(treatment, of_row));
    let rows = kept.iter().sum();
    let mut sparse = SparseRows::new(rows, ids.sum());
    for (of_user, of_row) in pairs() {
        let of_user = user.iter().flat_map(|(lists, width)| lists.ids(of_user, *width));
        let of_row = treatment.iter().flat_map(|(lists, width)| lists.ids(of_row, *width));
        sparse.push(of_user.chain(of_row));
    }
    sparse.into_tensors(names, vec![i64::try_from(rows).expect("sizes are limited")])
}

/// For each joined row, the rows of the user and of the treatment that it consists of.
fn row_pairs(kept: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let users = kept.iter().enumerate();
    users.flat_map(|(user, count)| std::iter::repeat_n(user, *count)).zip(0..)
}

fn lists(part: &Part) -> &RowLists {
    match part {
        Part::Lists(lists) => lists,
        Part::Content(_) => unreachable!("sparse rows are lists"),
    }
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

fn tensor(plan: &Plan, join: &Join, parts: &[Part], kept: &[usize]) -> Tensor {
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

fn bytes(part: &Part) -> &[u8] {
    match part {
        Part::Content(Content::Bytes(bytes)) => bytes,
        Part::Content(Content::Strings(_)) | Part::Lists(_) => &[],
    }
}

fn texts(part: &Part) -> &[Bytes] {
    match part {
        Part::Content(Content::Strings(texts)) => texts,
        Part::Content(Content::Bytes(_)) | Part::Lists(_) => &[],
    }
}

#[cfg(test)]
mod tests;
