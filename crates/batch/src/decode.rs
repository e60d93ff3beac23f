//! Output tensors as columns.

use std::{ops::Range, sync::Arc};

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, ListArray, PrimitiveArray, StringArray,
    types::{
        Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::Field;
use outrigger_oip::{DataType, Tensor};

use crate::columns::OutputColumn;

/// The lists of a row that an answer may have beside those that its elements stand for, and the
/// lists for each element. A list takes 4 bytes, so the lists of a row take at most 4 KiB, and
/// 32 bytes for each of its elements.
const MOST_LISTS: i64 = 1024;
const LISTS_OF_ELEMENT: i64 = 8;

/// About the most bytes of columns that are decoded together.
const TOGETHER: u64 = 1 << 20;

/// The copies of values, and the bytes of the place of an element, while a column is written: Parquet
/// has two levels of 2 bytes and an index of 8.
const COPIES_WRITTEN: u64 = 2;
const PLACE: u64 = 12;

/// Checks that an answer has the tensors of all columns. One that passes can be decoded.
///
/// # Errors
/// A tensor is missing, has another type or other dimensions, has more lists than its elements
/// explain, or a text is not UTF-8.
pub(crate) fn check(answer: &[Tensor], outputs: &[OutputColumn]) -> Result<(), String> {
    for output in outputs {
        let OutputColumn { tensor: name, datatype, depth, sizes, .. } = output;
        let tensor = find(answer, name)?;
        if tensor.datatype != *datatype {
            let found = tensor.datatype;
            return Err(format!("output {name} has the type {found}, not {datatype}"));
        }
        let is_like = match (&tensor.shape[..], depth) {
            ([_] | [_, 1], 0) => true,
            (shape, depth) => *depth > 0 && shape.len() == depth + 1,
        };
        if !is_like {
            let shape = &tensor.shape;
            let row = row_of(output);
            return Err(format!("output {name} has the shape {shape:?}, and a row has {row}"));
        }
        let found = tensor.shape.get(1..).unwrap_or_default();
        if sizes.iter().zip(found).any(|(size, found)| *size >= 0 && size != found) {
            let shape = &tensor.shape;
            return Err(format!("output {name} has the shape {shape:?}, not rows of {sizes:?}"));
        }
        if *depth > 0 && !has_few_lists(found) {
            let shape = &tensor.shape;
            return Err(format!("output {name} has the shape {shape:?}, with too many lists"));
        }
        let is_text = *datatype == DataType::Bytes;
        if is_text && tensor.texts().any(|text| std::str::from_utf8(text).is_err()) {
            return Err(format!("output {name} has a text that is not UTF-8"));
        }
    }
    Ok(())
}

/// The form of a row of a column, for messages.
fn row_of(OutputColumn { depth, sizes, .. }: &OutputColumn) -> String {
    match (depth, &sizes[..]) {
        (0, _) => "one value".to_owned(),
        (depth, []) => format!("{depth} dimensions"),
        (_, sizes) => format!("the sizes {sizes:?}"),
    }
}

/// True if a row of these sizes has no more lists than allowed. A shape whose last size is 0 has no
/// elements, whatever the other sizes are.
fn has_few_lists(sizes: &[i64]) -> bool {
    let (mut all, mut of_depth) = (0_i64, 1_i64);
    for size in sizes {
        all = all.saturating_add(of_depth);
        of_depth = of_depth.saturating_mul(*size);
    }
    all <= of_depth.saturating_mul(LISTS_OF_ELEMENT).saturating_add(MOST_LISTS)
}

fn find<'a>(answer: &'a [Tensor], name: &str) -> Result<&'a Tensor, String> {
    let found = answer.iter().find(|tensor| *tensor.name == *name);
    found.ok_or_else(|| format!("output {name} is missing"))
}

/// The columns of an answer that passed [`check`].
///
/// # Errors
/// A tensor is missing, or its values do not have its shape.
pub(crate) fn decode(answer: &[Tensor], outputs: &[OutputColumn]) -> Result<Vec<ArrayRef>, String> {
    let column = |output: &OutputColumn| {
        let tensor = find(answer, &output.tensor)?;
        let sizes = if output.depth == 0 { &[] } else { tensor.shape.get(1..).unwrap_or(&[]) };
        let rows = tensor.shape.first().copied().unwrap_or(1);
        let leaf = if output.is_json { json(tensor) } else { leaf(tensor) };
        nested(leaf, rows, sizes)
    };
    outputs.iter().map(column).collect()
}

/// The rows of an answer in ranges, whose columns take about [`TOGETHER`] bytes or have one row.
pub(crate) fn ranges(answer: &[&Tensor], rows: usize) -> Vec<Range<usize>> {
    let bytes: u64 = answer.iter().map(|tensor| decoded_bytes(tensor)).sum();
    let step = TOGETHER.saturating_mul(rows as u64) / bytes.max(1);
    let step = usize::try_from(step).unwrap_or(usize::MAX).max(1);
    (0..rows).step_by(step).map(|start| start..rows.min(start.saturating_add(step))).collect()
}

/// The bytes that rows of an answer take beside it while they are decoded and written: their columns, a
/// copy of them in the file's form, and the place of each element in its lists.
pub(crate) fn writing_bytes(answer: &[&Tensor], all: usize, rows: usize) -> u64 {
    let bytes = |tensor: &&Tensor| {
        let elements: u64 =
            tensor.shape.iter().map(|size| u64::try_from(*size).unwrap_or_default()).product();
        COPIES_WRITTEN * decoded_bytes(tensor) + PLACE * elements
    };
    let bytes: u64 = answer.iter().map(bytes).sum();
    bytes.div_ceil(all.max(1) as u64).saturating_mul(rows as u64)
}

/// The bytes of a tensor as a column: its values, and the offsets of its lists.
fn decoded_bytes(tensor: &Tensor) -> u64 {
    let widened = if tensor.datatype == DataType::Bf16 { 2 } else { 1 };
    let inner = tensor.shape.len().saturating_sub(1);
    let mut lists = 1_u64;
    let offsets = tensor.shape.iter().take(inner).fold(0_u64, |offsets, size| {
        lists = lists.saturating_mul(u64::try_from(*size).unwrap_or_default());
        offsets.saturating_add(lists)
    });
    let offsets = offsets.saturating_mul(size_of::<i32>() as u64);
    offsets.saturating_add(widened * tensor.data.len() as u64)
}

/// Values in lists of these sizes, outermost first.
fn nested(leaf: ArrayRef, rows: i64, sizes: &[i64]) -> Result<ArrayRef, String> {
    let mut values = leaf;
    for (depth, size) in sizes.iter().enumerate().rev() {
        let lists = sizes[..depth].iter().fold(rows, |lists, size| lists * size);
        let count = |size: i64| usize::try_from(size).map_err(|error| error.to_string());
        let offsets = OffsetBuffer::try_from_repeated_length(count(*size)?, count(lists)?);
        let offsets = offsets.map_err(|error| error.to_string())?;
        let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let list = ListArray::try_new(field, offsets, values, None);
        values = Arc::new(list.map_err(|error| error.to_string())?);
    }
    Ok(values)
}

/// Texts of JSON, where `null` is an absent one.
fn json(tensor: &Tensor) -> ArrayRef {
    let texts = tensor.texts().map(|text| (text != b"null").then(|| String::from_utf8_lossy(text)));
    Arc::new(StringArray::from_iter(texts))
}

/// The elements of a tensor.
fn leaf(tensor: &Tensor) -> ArrayRef {
    match tensor.datatype {
        DataType::Bool => {
            Arc::new(BooleanArray::from_iter(tensor.data.iter().map(|byte| Some(*byte != 0))))
        }
        DataType::Bytes => Arc::new(StringArray::from_iter_values(
            tensor.texts().map(|text| String::from_utf8_lossy(text)),
        )),
        DataType::Bf16 => {
            let halves = tensor.data.as_chunks().0.iter();
            let wide =
                halves.map(|half| f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16));
            Arc::new(PrimitiveArray::<Float32Type>::from_iter_values(wide))
        }
        DataType::Uint8 => numbers::<UInt8Type>(tensor),
        DataType::Uint16 => numbers::<UInt16Type>(tensor),
        DataType::Uint32 => numbers::<UInt32Type>(tensor),
        DataType::Uint64 => numbers::<UInt64Type>(tensor),
        DataType::Int8 => numbers::<Int8Type>(tensor),
        DataType::Int16 => numbers::<Int16Type>(tensor),
        DataType::Int32 => numbers::<Int32Type>(tensor),
        DataType::Int64 => numbers::<Int64Type>(tensor),
        DataType::Fp16 => numbers::<Float16Type>(tensor),
        DataType::Fp32 => numbers::<Float32Type>(tensor),
        DataType::Fp64 => numbers::<Float64Type>(tensor),
    }
}

/// Numbers, which are little-endian as in memory. They are copied: those of an answer need not be
/// aligned.
fn numbers<T: ArrowPrimitiveType>(tensor: &Tensor) -> ArrayRef {
    const { assert!(cfg!(target_endian = "little"), "columns are little-endian") };
    let values = ScalarBuffer::<T::Native>::from(Buffer::from_slice_ref(&tensor.data[..]));
    Arc::new(PrimitiveArray::<T>::new(values, None))
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray as _;

    use super::*;

    fn column(datatype: DataType, depth: usize) -> OutputColumn {
        let (column, tensor, is_json) = ("c".to_owned(), "y".to_owned(), false);
        OutputColumn { column, tensor, datatype, depth, sizes: Vec::new(), is_json }
    }

    fn tensor(datatype: DataType, shape: &[i64], data: &[u8]) -> Tensor {
        let data = bytes::Bytes::copy_from_slice(data);
        Tensor::new("y", datatype, shape.to_vec(), data).expect("a tensor")
    }

    #[test]
    fn values_and_lists_have_the_order_of_the_tensor() {
        let bytes: Vec<u8> = (0..12).collect();
        let grid = tensor(DataType::Int8, &[2, 3, 2], &bytes);
        let output = [column(DataType::Int8, 2)];
        check(std::slice::from_ref(&grid), &output).expect("it fits");
        let columns = decode(&[grid], &output).expect("decoded");
        let second = columns[0].as_list::<i32>().value(1);
        let pair = second.as_list::<i32>().value(2);
        assert_eq!(pair.as_primitive::<Int8Type>().values(), &[10, 11]);
        let one = tensor(DataType::Int8, &[3, 1], &[7, 8, 9]);
        let columns = decode(&[one], &[column(DataType::Int8, 0)]).expect("decoded");
        assert_eq!(columns[0].as_primitive::<Int8Type>().values(), &[7, 8, 9]);
    }

    #[test]
    fn large_answers_are_decoded_in_parts() {
        let of = |datatype, shape: &[i64], bytes: usize| {
            let data = vec![0; bytes].into();
            Tensor::new("y", datatype, shape.to_vec(), data).expect("a tensor")
        };
        for (tensor, rows, expected) in [
            (of(DataType::Fp32, &[5], 20), 5, &[5][..]),
            (of(DataType::Fp32, &[3, 1 << 18], 3 << 20), 3, &[1, 1, 1]),
            // It is widened.
            (of(DataType::Bf16, &[4, 1 << 16], 4 << 17), 4, &[3, 1]),
            // An offset of 4 bytes for each value.
            (of(DataType::Int8, &[8, 1 << 16, 1], 8 << 16), 8, &[3, 3, 2]),
        ] {
            let found = ranges(&[&tensor], rows);
            assert_eq!(found.iter().map(Range::len).collect::<Vec<_>>(), expected);
            assert!(found.iter().is_sorted_by_key(|range| range.start));
        }
    }

    #[test]
    fn rows_that_are_written_take_more_than_their_answer() {
        let grid = tensor(DataType::Fp32, &[4, 2], &[0; 32]);
        // 32 bytes and 4 offsets, twice, and the places of 8 numbers.
        assert_eq!(writing_bytes(&[&grid], 4, 4), 2 * (32 + 16) + 8 * 12);
        assert_eq!(writing_bytes(&[&grid], 4, 1), 48);
        assert_eq!(writing_bytes(&[], 0, 0), 0);
    }

    #[test]
    fn values_need_not_be_aligned() {
        let data = bytes::Bytes::from_owner([0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 9]);
        let tensor = Tensor::new("y", DataType::Fp32, vec![2], data.slice(1..9)).expect("a tensor");
        let columns = decode(&[tensor], &[column(DataType::Fp32, 0)]).expect("decoded");
        assert_eq!(columns[0].as_primitive::<Float32Type>().values(), &[1.0, 2.0]);
    }

    #[test]
    fn wide_forms_stand_for_narrow_ones() {
        let half = tensor(DataType::Bf16, &[1], &[0x80, 0x3f]);
        let columns = decode(&[half], &[column(DataType::Bf16, 0)]).expect("decoded");
        assert_eq!(columns[0].as_primitive::<Float32Type>().values(), &[1.0]);
        let flags = tensor(DataType::Bool, &[2], &[1, 0]);
        let columns = decode(&[flags], &[column(DataType::Bool, 0)]).expect("decoded");
        assert_eq!(columns[0].as_boolean().iter().collect::<Vec<_>>(), [Some(true), Some(false)]);
    }

    #[test]
    fn sizes_that_the_model_fixes_hold_for_every_answer() {
        let sizes = vec![-1, 2];
        let output = [OutputColumn { sizes, ..column(DataType::Int8, 2) }];
        let of = |shape: &[i64]| tensor(DataType::Int8, shape, &[7; 12]);
        for shape in [[2, 3, 2], [1, 6, 2]] {
            assert_eq!(check(&[of(&shape)], &output), Ok(()), "{shape:?}");
        }
        let error = check(&[of(&[2, 2, 3])], &output).expect_err("another size");
        assert!(error.contains("rows of [-1, 2]"), "{error}");
    }

    #[test]
    fn lists_without_elements_are_bounded() {
        let of = |shape: &[i64], bytes: usize| tensor(DataType::Int8, shape, &vec![7; bytes]);
        for (shape, bytes) in [
            (&[2, 0][..], 0),
            (&[2, 3, 0], 0),
            (&[2, 0, 1 << 40], 0),
            (&[2, 30, 32, 0], 0),
            (&[1, 5000, 1, 1], 5000),
        ] {
            let (answer, output) = ([of(shape, bytes)], [column(DataType::Int8, shape.len() - 1)]);
            assert_eq!(check(&answer, &output), Ok(()), "{shape:?}");
            let rows = decode(&answer, &output).expect("decoded")[0].len();
            assert_eq!(rows as i64, shape[0], "{shape:?}");
        }
        let many = [&[1, 5000][..], &[1; 12]].concat();
        for (shape, bytes) in [
            (&[2, 1 << 40, 0][..], 0),
            (&[1, 1024, 0], 0),
            (&[1, 1 << 30, 1 << 30, 0], 0),
            (&[3, 4, 1 << 40, 0, 1], 0),
            (&many, 5000),
        ] {
            let output = [column(DataType::Int8, shape.len() - 1)];
            let error = check(&[of(shape, bytes)], &output).expect_err("too many lists");
            assert!(error.contains("too many lists"), "{shape:?}: {error}");
        }
    }

    #[test]
    fn an_answer_unlike_the_plan_is_refused() {
        let output = [column(DataType::Int8, 0)];
        for (answer, fault) in [
            (tensor(DataType::Uint8, &[1], &[1]), "type UINT8"),
            (tensor(DataType::Int8, &[1, 2], &[1, 2]), "shape [1, 2]"),
            (tensor(DataType::Int8, &[1, 1, 1], &[1]), "shape [1, 1, 1]"),
        ] {
            let error = check(&[answer], &output).expect_err(fault);
            assert!(error.contains(fault), "{error}");
        }
        assert!(check(&[], &output).expect_err("missing").contains("is missing"));
        let text = tensor(DataType::Bytes, &[1], &[1, 0, 0, 0, 0xff]);
        let error = check(&[text], &[column(DataType::Bytes, 0)]).expect_err("not UTF-8");
        assert!(error.contains("UTF-8"), "{error}");
    }
}
