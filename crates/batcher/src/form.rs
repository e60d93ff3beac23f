//! The form of a call: calls of equal forms can be joined.

use std::sync::Arc;

use outrigger_core::{Content, DType, Tensor};
use outrigger_run::{Call, RowLayout};

/// The memory of a string beside its text, in bytes.
pub(crate) const STRING: usize = size_of::<bytes::Bytes>();

/// The parts of a call that all calls of a batch have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    outputs: Vec<Arc<str>>,
    inputs: Vec<InputForm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct InputForm {
    name: Arc<str>,
    dtype: DType,
    /// The sizes of a row; `None` for one that is padded.
    row: Vec<Option<i64>>,
}

/// The size of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first size of all inputs and outputs.
    pub(crate) rows: usize,
    /// The treatments of each row; 1 where nothing is padded.
    pub(crate) treatments: usize,
    /// The memory of the inputs in bytes.
    pub(crate) bytes: usize,
}

/// The form and the size of a call of a version whose inputs have this layout; `None` if its rows
/// cannot be joined with those of others.
pub(crate) fn of(call: &Call, layout: RowLayout) -> Option<(Form, Extent)> {
    let (mut rows, mut treatments) = (None, None);
    let mut inputs = Vec::with_capacity(call.inputs.len());
    for tensor in &call.inputs {
        let (first, row) = tensor.shape.split_first()?;
        if *rows.get_or_insert(*first) != *first {
            return None;
        }
        let mut row: Vec<_> = row.iter().copied().map(Some).collect();
        if let (RowLayout::PerEntity, [padded, _]) = (layout, &mut row[..]) {
            let count = padded.take()?;
            if *treatments.get_or_insert(count) != count {
                return None;
            }
        }
        inputs.push(InputForm { name: Arc::clone(&tensor.name), dtype: tensor.dtype, row });
    }
    let positive = |size: i64| usize::try_from(size).ok().filter(|size| *size > 0);
    let extent = Extent {
        rows: positive(rows?)?,
        treatments: positive(treatments.unwrap_or(1))?,
        bytes: call.inputs.iter().map(memory).sum(),
    };
    let is_joinable = layout != RowLayout::Unknown && call.inputs.iter().all(is_whole);
    is_joinable.then(|| (Form { outputs: call.outputs.clone(), inputs }, extent))
}

/// The memory of a tensor's elements in bytes.
pub(crate) fn memory(tensor: &Tensor) -> usize {
    match &tensor.content {
        Content::Bytes(bytes) => bytes.len(),
        Content::Strings(strings) => tensor.size() + strings.len() * STRING,
    }
}

/// True if the tensor has the elements that its shape says, and at least one.
fn is_whole(tensor: &Tensor) -> bool {
    let found = match (&tensor.content, tensor.dtype.size()) {
        (Content::Bytes(bytes), Some(size)) if bytes.len().is_multiple_of(size) => {
            bytes.len() / size
        }
        (Content::Strings(strings), None) => strings.len(),
        _ => return false,
    };
    let size = |size: &i64| usize::try_from(*size).ok();
    let elements = tensor.shape.iter().try_fold(1, |all: usize, it| all.checked_mul(size(it)?));
    found > 0 && elements == Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{call, floats};

    fn rows(layout: RowLayout, inputs: Vec<Tensor>) -> Option<(usize, usize)> {
        of(&call(inputs), layout).map(|(_, extent)| (extent.rows, extent.treatments))
    }

    #[test]
    fn rows_are_the_first_size_and_treatments_the_second_of_three() {
        let inputs = || vec![floats("user", &[2, 3]), floats("treatment", &[2, 5, 4])];
        assert_eq!(rows(RowLayout::PerEntity, inputs()), Some((2, 5)));
        assert_eq!(rows(RowLayout::Joined, inputs()), Some((2, 1)));
        assert_eq!(rows(RowLayout::Unknown, inputs()), None);
    }

    #[test]
    fn calls_differ_in_form_by_everything_but_rows_and_padded_treatments() {
        let form = |layout, inputs| of(&call(inputs), layout).expect("it has rows").0;
        let treatments = |count| vec![floats("treatment", &[1, count, 4])];
        let [one, other] = [2, 3].map(|count| form(RowLayout::PerEntity, treatments(count)));
        assert_eq!(one, other);
        let [one, other] = [2, 3].map(|count| form(RowLayout::Joined, treatments(count)));
        assert_ne!(one, other);
        let [one, other] =
            [2, 3].map(|width| form(RowLayout::PerEntity, vec![floats("user", &[1, width])]));
        assert_ne!(one, other);
        let one = of(&call(vec![floats("user", &[1, 2])]), RowLayout::Joined);
        let wanted = Call { outputs: vec!["a".into()], ..call(vec![floats("user", &[1, 2])]) };
        assert_ne!(one.map(|it| it.0), of(&wanted, RowLayout::Joined).map(|it| it.0));
    }

    #[test]
    fn calls_without_common_rows_cannot_be_joined() {
        for inputs in [
            vec![],
            vec![floats("scalar", &[])],
            vec![floats("none", &[0, 2])],
            vec![floats("values", &[5]), floats("lengths", &[2])],
            vec![floats("a", &[1, 2, 1]), floats("b", &[1, 3, 1])],
            vec![floats("empty", &[1, 0, 2])],
            vec![floats("no_elements", &[1, 0])],
            vec![Tensor { shape: vec![2, 2], ..floats("short", &[2, 1]) }],
        ] {
            assert_eq!(rows(RowLayout::PerEntity, inputs.clone()), None, "{inputs:?}");
        }
    }
}
