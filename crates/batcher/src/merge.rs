//! The inputs of several calls joined into those of one, and its outputs divided among them.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use outrigger_core::{Content, Tensor};

use crate::form::STRING;

/// The memory in bytes of the inputs that [`join`] makes.
pub(crate) fn joined_memory(calls: &[&[Tensor]]) -> usize {
    let inputs = 0..calls.first().map_or(0, |call| call.len());
    let memory = |input: usize| {
        let row = largest_row(calls, input);
        let rows: usize = calls.iter().map(|call| size(call[input].shape[0])).sum();
        let element = calls[0][input].dtype.size().unwrap_or(STRING);
        row.iter().fold(rows.saturating_mul(element), |all, it| all.saturating_mul(size(*it)))
    };
    inputs.map(memory).fold(0, usize::saturating_add)
}

/// Joins the inputs of calls of one form. A row that is smaller than the largest one of its input is
/// padded at its end with the first element of the call's own tensor.
pub(crate) fn join(calls: &[&[Tensor]]) -> Vec<Tensor> {
    let inputs = 0..calls.first().map_or(0, |call| call.len());
    inputs.map(|input| join_input(calls, input)).collect()
}

fn join_input(calls: &[&[Tensor]], input: usize) -> Tensor {
    let row = largest_row(calls, input);
    let parts = || calls.iter().map(|call| &call[input]);
    let first = &calls[0][input];
    let content = match (&first.content, first.dtype.size()) {
        (Content::Bytes(_), Some(element)) => {
            let elements: usize = row.iter().map(|it| size(*it)).product();
            let rows: usize = parts().map(|part| size(part.shape[0])).sum();
            let mut joined = BytesMut::with_capacity(rows * elements * element);
            parts().for_each(|part| append_bytes(&mut joined, part, elements * element, element));
            Content::Bytes(joined.freeze())
        }
        _ => {
            let elements = row.iter().map(|it| size(*it)).product();
            let mut joined = Vec::new();
            parts().for_each(|part| append_strings(&mut joined, part, elements));
            Content::Strings(joined)
        }
    };
    let rows = parts().map(|part| part.shape[0]).sum();
    let shape = [rows].into_iter().chain(row).collect();
    Tensor { name: first.name.clone(), dtype: first.dtype, shape, content }
}

/// The largest size of each dimension of a row.
fn largest_row(calls: &[&[Tensor]], input: usize) -> Vec<i64> {
    let mut largest = calls[0][input].shape[1..].to_vec();
    for call in calls {
        let row = largest.iter_mut().zip(&call[input].shape[1..]);
        row.for_each(|(most, size)| *most = (*most).max(*size));
    }
    largest
}

/// Appends the rows of a tensor of plain elements, each padded to `padded` bytes. Only the second
/// dimension of a tensor differs within a batch, so padding follows the elements of a row.
fn append_bytes(to: &mut BytesMut, part: &Tensor, padded: usize, element: usize) {
    let Content::Bytes(bytes) = &part.content else { return };
    let row = bytes.len() / size(part.shape[0]);
    if row == padded {
        return to.extend_from_slice(bytes);
    }
    let padding = bytes[..element].repeat((padded - row) / element);
    for row in bytes.chunks_exact(row) {
        to.extend_from_slice(row);
        to.extend_from_slice(&padding);
    }
}

/// Appends the rows of a tensor of strings, each padded to `padded` elements.
fn append_strings(to: &mut Vec<Bytes>, part: &Tensor, padded: usize) {
    let Content::Strings(strings) = &part.content else { return };
    let row = strings.len() / size(part.shape[0]);
    for row in strings.chunks_exact(row) {
        to.extend_from_slice(row);
        to.resize(to.len() + padded - row.len(), strings[0].clone());
    }
}

/// Divides outputs among calls of these numbers of rows. `None` if an output does not have the rows
/// of all calls. The parts are copied, so that none keeps the memory of all.
pub(crate) fn divide(outputs: &[Tensor], rows: &[usize]) -> Option<Vec<Vec<Tensor>>> {
    let all: usize = rows.iter().sum();
    let is_whole = |tensor: &Tensor| {
        let has_rows = tensor.shape.first().is_some_and(|found| size(*found) == all);
        let elements = match &tensor.content {
            Content::Bytes(bytes) => bytes.len(),
            Content::Strings(strings) => strings.len(),
        };
        has_rows && elements.is_multiple_of(all)
    };
    if !outputs.iter().all(is_whole) {
        return None;
    }
    let mut start = 0;
    let parts = rows.iter().map(|rows| {
        let range = start..start + rows;
        start = range.end;
        outputs.iter().map(|output| part(output, range.clone(), all)).collect()
    });
    Some(parts.collect())
}

/// Some of the rows of an output that has `all`.
fn part(output: &Tensor, rows: Range<usize>, all: usize) -> Tensor {
    let of = |elements: usize| rows.start * (elements / all)..rows.end * (elements / all);
    let content = match &output.content {
        Content::Bytes(bytes) => Content::Bytes(Bytes::copy_from_slice(&bytes[of(bytes.len())])),
        Content::Strings(strings) => Content::Strings(strings[of(strings.len())].to_vec()),
    };
    let mut shape = output.shape.clone();
    shape[0] = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    Tensor { name: output.name.clone(), dtype: output.dtype, shape, content }
}

/// A size of a tensor that has elements.
fn size(size: i64) -> usize {
    usize::try_from(size).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use outrigger_core::DType;

    use super::*;
    use crate::tests::numbers;

    fn strings(shape: &[i64], texts: &[&'static str]) -> Tensor {
        let content = Content::Strings(
            texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect(),
        );
        Tensor { name: "s".into(), dtype: DType::String, shape: shape.to_vec(), content }
    }

    #[test]
    fn rows_are_padded_with_the_first_element_of_their_own_call() {
        let one = [numbers("x", &[1, 3, 1], &[1.0, 2.0, 3.0])];
        let two = [numbers("x", &[2, 1, 1], &[7.0, 8.0])];
        let joined = join(&[&one, &two]);
        let expected = [1.0, 2.0, 3.0, 7.0, 7.0, 7.0, 8.0, 7.0, 7.0];
        assert_eq!(joined, [numbers("x", &[3, 3, 1], &expected)]);
        assert_eq!(joined_memory(&[&one, &two]), 9 * 4);
    }

    #[test]
    fn strings_are_joined_and_padded_as_numbers_are() {
        let one = [strings(&[1, 2, 1], &["a", "b"])];
        let two = [strings(&[1, 1, 1], &["c"])];
        assert_eq!(join(&[&one, &two]), [strings(&[2, 2, 1], &["a", "b", "c", "c"])]);
        assert_eq!(joined_memory(&[&one, &two]), 4 * STRING);
    }

    #[test]
    fn outputs_are_divided_by_rows() {
        let outputs = [
            numbers("y", &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            strings(&[3], &["a", "b", "c"]),
        ];
        let parts = divide(&outputs, &[1, 2]).expect("they have the rows");
        assert_eq!(parts[0], [numbers("y", &[1, 2], &[1.0, 2.0]), strings(&[1], &["a"])]);
        let second = [numbers("y", &[2, 2], &[3.0, 4.0, 5.0, 6.0]), strings(&[2], &["b", "c"])];
        assert_eq!(parts[1], second);
    }

    #[test]
    fn outputs_without_the_rows_of_all_calls_are_not_divided() {
        for output in [
            numbers("y", &[], &[1.0]),
            numbers("y", &[2], &[1.0, 2.0]),
            Tensor {
                content: Content::Bytes(Bytes::from_static(b"12345")),
                ..numbers("y", &[3], &[])
            },
        ] {
            assert_eq!(divide(&[output], &[1, 2]), None);
        }
    }
}
