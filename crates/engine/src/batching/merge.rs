//! Tensors of several requests, merged to one of a batch and split again.

use std::ops::Range;

use tonic::Code;

use crate::{
    status::Status,
    tensorflow::{DType, Runtime, Tensor},
};

/// The largest rank of tensors that are padded.
const MAX_RANK: usize = 6;
/// The largest merged tensor in bytes. Padding may make it much larger than the requests.
const MAX_BYTES: usize = i32::MAX as usize;
/// The size of a string in a tensor, without its text, in bytes.
const STRING: usize = 24;

/// Some rows of a tensor.
#[derive(Debug, Clone)]
pub(super) struct Rows<'a> {
    pub(super) tensor: &'a Tensor,
    pub(super) rows: Range<usize>,
}

/// Elements of a merged tensor, as positions in one of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Span {
    Copy(Range<usize>),
    /// The first element of the part, so many times.
    Pad(usize),
}

/// Merges an input of all requests in a batch. If `pads`, all dimensions but the first are padded to
/// the largest in the batch, with the first element of each request's own tensor. At the end,
/// `more` rows repeat the first row of the last request.
///
/// # Errors
/// FAILED_PRECONDITION if the shapes differ and are not padded, INVALID_ARGUMENT if they cannot be
/// padded, INTERNAL if the types differ.
pub(super) fn inputs(
    runtime: Runtime,
    name: &str,
    parts: &[Rows<'_>],
    pads: bool,
    more: usize,
) -> Result<Tensor, Status> {
    let shapes: Vec<_> = parts.iter().map(Rows::row).collect();
    if shapes.iter().all(|shape| *shape == shapes[0]) {
        return concat(runtime, parts, &shapes[0], more);
    }
    if !pads {
        return Err(Status::precondition(format!(
            "Tensors with name '{name}' from different tasks have different shapes and padding is turned off. Set pad_variable_length_inputs to true, or ensure that all tensors with the same name have equal dimensions starting with the first dim."
        )));
    }
    let largest = largest(name, &shapes)?;
    if largest.len() >= MAX_RANK {
        return Err(Status::invalid("Only tensors with rank from 1 to 6 can be padded."));
    }
    let is_empty = |part: &Rows<'_>| part.tensor.dims().contains(&0);
    if parts.iter().zip(&shapes).any(|(part, shape)| *shape != largest && is_empty(part)) {
        return Err(Status::invalid("Got empty tensor in batch of non-empty tensors."));
    }
    concat(runtime, parts, &largest, more)
}

/// Some rows of an output.
///
/// # Errors
/// INTERNAL if its type has no copy.
pub(super) fn rows(
    runtime: Runtime,
    tensor: &Tensor,
    rows: Range<usize>,
) -> Result<Tensor, Status> {
    let part = Rows { tensor, rows };
    concat(runtime, std::slice::from_ref(&part), &part.row(), 0)
}

/// Checks that an output has as many rows as the inputs of its batch.
///
/// # Errors
/// FAILED_PRECONDITION.
pub(super) fn check_rows(output: &Tensor, rows: i64) -> Result<(), Status> {
    match output.dims().first() {
        None => Err(Status::precondition("Batched output tensor has 0 dimensions")),
        Some(found) if *found != rows => Err(Status::precondition(
            "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input tensors",
        )),
        Some(_) => Ok(()),
    }
}

/// The outputs of a request from those of its parts.
///
/// # Errors
/// INTERNAL if the parts have different shapes or types.
pub(super) fn join(runtime: Runtime, mut parts: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>, Status> {
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    let whole = |tensor: &Tensor| tensor.dims().first().map_or(0, |rows| size(*rows));
    let output = |index: usize| {
        let of = parts.iter().map(|part| &part[index]);
        let all: Vec<_> = of.map(|tensor| Rows { tensor, rows: 0..whole(tensor) }).collect();
        let row = all[0].row();
        match all.iter().all(|part| part.row() == row) {
            true => concat(runtime, &all, &row, 0),
            false => Err(not_merged("the shapes of the tensors differ")),
        }
    };
    (0..parts.first().map_or(0, Vec::len)).map(output).collect()
}

impl Rows<'_> {
    /// The shape of one row.
    fn row(&self) -> Vec<usize> {
        self.tensor.dims().iter().skip(1).map(|dim| size(*dim)).collect()
    }

    /// The elements of the rows in a tensor whose rows have the shape `padded`.
    fn spans(&self, padded: &[usize], each: &mut impl FnMut(Span)) {
        let row = self.row();
        let elements: usize = row.iter().product();
        if row == padded {
            return each(Span::Copy(self.rows.start * elements..self.rows.end * elements));
        }
        self.rows.clone().for_each(|index| spans(&row, padded, index * elements, each));
    }
}

/// The largest size of each dimension.
fn largest(name: &str, shapes: &[Vec<usize>]) -> Result<Vec<usize>, Status> {
    let mut largest = shapes[0].clone();
    for shape in shapes {
        if shape.len() != largest.len() {
            let message = format!("Tensors with name '{name}' have different ranks");
            return Err(Status::invalid(message));
        }
        largest.iter_mut().zip(shape).for_each(|(most, size)| *most = (*most).max(*size));
    }
    Ok(largest)
}

/// The elements of a block of the shape `shape`, which begins at `start`, padded to `padded`.
fn spans(shape: &[usize], padded: &[usize], start: usize, each: &mut impl FnMut(Span)) {
    let ([length, shape @ ..], [padded_length, padded @ ..]) = (shape, padded) else {
        return each(Span::Copy(start..start + 1));
    };
    let elements: usize = shape.iter().product();
    if shape == padded {
        each(Span::Copy(start..start + length * elements));
    } else {
        (0..*length).for_each(|index| spans(shape, padded, start + index * elements, each));
    }
    each(Span::Pad((padded_length - length) * padded.iter().product::<usize>()));
}

/// One tensor of the rows of all parts, padded to the shape `row`, and `more` copies of the first
/// row of the last part that has one.
fn concat(
    runtime: Runtime,
    parts: &[Rows<'_>],
    row: &[usize],
    more: usize,
) -> Result<Tensor, Status> {
    let dtype = parts[0].tensor.dtype();
    if parts.iter().any(|part| part.tensor.dtype() != dtype) {
        return Err(not_merged("the types of the tensors differ"));
    }
    let last = parts.iter().rposition(|part| !part.rows.is_empty());
    let more = last.map_or(0, |_| more);
    let count = parts.iter().map(|part| part.rows.len()).sum::<usize>() + more;
    check_size(dtype, count, row)?;
    let dims: Vec<_> = [count].iter().chain(row).map(|size| *size as i64).collect();
    let each_span = |each: &mut dyn FnMut(usize, Span)| {
        for (index, part) in parts.iter().enumerate() {
            part.spans(row, &mut |span| each(index, span));
        }
        let Some(last) = last else { return };
        let start = parts[last].rows.start;
        let first = Rows { rows: start..start + 1, ..parts[last].clone() };
        (0..more).for_each(|_| first.spans(row, &mut |span| each(last, span)));
    };
    let merged = match dtype.size() {
        Some(size) => {
            let bytes: Vec<_> = parts.iter().map(|part| part.tensor.bytes()).collect();
            Tensor::plain(runtime, dtype, &dims, |to| {
                each_span(&mut |part, span| match span {
                    Span::Copy(range) => to.put(&bytes[part][range.start * size..range.end * size]),
                    Span::Pad(count) => (0..count).for_each(|_| to.put(&bytes[part][..size])),
                });
            })
        }
        None if dtype == DType::STRING => strings(runtime, parts, &dims, each_span),
        None => return Err(not_merged(&format!("tensors of {dtype} cannot be copied"))),
    };
    merged.ok_or_else(|| Status::new(Code::ResourceExhausted, "there is no memory for a batch"))
}

fn check_size(dtype: DType, count: usize, row: &[usize]) -> Result<(), Status> {
    let element = dtype.size().unwrap_or(STRING);
    let bytes = row.iter().try_fold(count * element, |bytes, size| bytes.checked_mul(*size));
    match bytes.is_some_and(|bytes| bytes <= MAX_BYTES) {
        true => Ok(()),
        false => {
            let message = format!("a tensor of the batch would have more than {MAX_BYTES} bytes");
            Err(Status::new(Code::ResourceExhausted, message))
        }
    }
}

fn strings(
    runtime: Runtime,
    parts: &[Rows<'_>],
    dims: &[i64],
    each_span: impl Fn(&mut dyn FnMut(usize, Span)),
) -> Option<Tensor> {
    let texts: Vec<Vec<&[u8]>> =
        parts.iter().map(|part| part.tensor.iter_strings().collect()).collect();
    let mut merged: Vec<&[u8]> = Vec::new();
    each_span(&mut |part, span| match span {
        Span::Copy(range) => merged.extend(&texts[part][range]),
        Span::Pad(count) => merged.extend(std::iter::repeat_n(texts[part][0], count)),
    });
    Tensor::strings(runtime, dims, merged.into_iter())
}

fn not_merged(cause: &str) -> Status {
    Status::new(Code::Internal, format!("Tensor concat operation failed: {cause}"))
}

/// A dimension of a tensor that exists, which is not negative.
fn size(dim: i64) -> usize {
    usize::try_from(dim).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of 0, 1, 2 and so on after padding; `x` is the padding.
    fn padded(shape: &[usize], to: &[usize]) -> String {
        let mut text = String::new();
        spans(shape, to, 0, &mut |span| match span {
            Span::Copy(range) => range.for_each(|element| text += &element.to_string()),
            Span::Pad(count) => text += &"x".repeat(count),
        });
        text
    }

    #[test]
    fn every_dimension_of_a_row_is_padded_at_its_end() {
        assert_eq!(padded(&[], &[]), "0");
        assert_eq!(padded(&[2], &[4]), "01xx");
        assert_eq!(padded(&[2, 2], &[3, 2]), "0123xx");
        assert_eq!(padded(&[2, 2], &[2, 3]), "01x23x");
        assert_eq!(padded(&[2, 1], &[3, 2]), "0x1xxx");
        assert_eq!(padded(&[1, 2, 1], &[2, 2, 2]), "0x1xxxxx");
    }

    #[test]
    fn the_largest_size_is_found_for_each_dimension() {
        let shapes = [vec![1, 5], vec![3, 2]];
        assert_eq!(largest("x", &shapes), Ok(vec![3, 5]));
        let ranks = largest("x", &[vec![1], vec![1, 1]]).expect_err("they differ");
        assert_eq!(ranks.message, "Tensors with name 'x' have different ranks");
    }
}
