//! The memory of rows.

use std::ops::Range;

use arrow_array::{Array, OffsetSizeTrait, RecordBatch, cast::AsArray as _};
use arrow_schema::DataType;

/// The most of the first rows of a table, at most `most`, that take no more than `bytes`, with the
/// bytes that they take.
pub(super) fn fitting(table: &RecordBatch, most: usize, bytes: u64) -> (usize, u64) {
    let size = |rows: usize| size_of_rows(table, rows);
    let most = most.min(table.num_rows());
    let all = size(most);
    if all <= bytes {
        return (most, all);
    }
    // `fit` rows fit, and `exceed` rows do not.
    let (mut fit, mut exceed) = (0, most);
    while exceed - fit > 1 {
        let middle = fit + (exceed - fit) / 2;
        if size(middle) <= bytes {
            fit = middle;
        } else {
            exceed = middle;
        }
    }
    (fit, size(fit))
}

/// The bytes of the rows of a table, without those that say which values are absent.
pub fn bytes_of_rows(table: &RecordBatch) -> u64 {
    size_of_rows(table, table.num_rows())
}

fn size_of_rows(table: &RecordBatch, rows: usize) -> u64 {
    table.columns().iter().map(|column| size_of_values(&**column, 0..rows)).sum()
}

/// The bytes of some values of an array, without those that say which are absent.
fn size_of_values(array: &dyn Array, range: Range<usize>) -> u64 {
    let count = range.len() as u64;
    match array.data_type() {
        DataType::Utf8 => texts(array.as_string::<i32>().value_offsets(), range),
        DataType::LargeUtf8 => texts(array.as_string::<i64>().value_offsets(), range),
        DataType::Binary => texts(array.as_binary::<i32>().value_offsets(), range),
        DataType::LargeBinary => texts(array.as_binary::<i64>().value_offsets(), range),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            size_of_lists(list.value_offsets(), &**list.values(), range)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            size_of_lists(list.value_offsets(), &**list.values(), range)
        }
        DataType::Map(..) => {
            let map = array.as_map();
            size_of_lists(map.value_offsets(), map.entries(), range)
        }
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            columns.map(|column| size_of_values(&**column, range.clone())).sum()
        }
        DataType::FixedSizeBinary(width) => count * u64::from(width.unsigned_abs()),
        other => count * other.primitive_width().unwrap_or(1) as u64,
    }
}

/// The bytes of texts and of their offsets.
fn texts<O: OffsetSizeTrait>(offsets: &[O], range: Range<usize>) -> u64 {
    let count = range.len();
    (within(offsets, range).len() + count * size_of::<O>()) as u64
}

/// The bytes of lists with these offsets and values.
fn size_of_lists<O: OffsetSizeTrait>(
    offsets: &[O],
    values: &dyn Array,
    range: Range<usize>,
) -> u64 {
    let own = (range.len() * size_of::<O>()) as u64;
    own + size_of_values(values, within(offsets, range))
}

/// The values that belong to a range of texts or lists.
fn within<O: OffsetSizeTrait>(offsets: &[O], range: Range<usize>) -> Range<usize> {
    offsets[range.start].as_usize()..offsets[range.end].as_usize()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, BooleanArray, Int64Array, ListArray, StringArray, StructArray, types::Int16Type,
    };
    use arrow_schema::Field;

    use super::*;

    fn table(columns: Vec<ArrayRef>) -> RecordBatch {
        let columns = (0..).zip(columns).map(|(at, column): (u32, _)| (at.to_string(), column));
        RecordBatch::try_from_iter(columns).expect("a table")
    }

    #[test]
    fn rows_are_counted_until_they_do_not_fit() {
        let texts = StringArray::from(vec!["", "four", "sixteen letters.", ""]);
        let texts = table(vec![Arc::new(texts)]);
        let expected = [(3, 0, 0), (4, 1, 4), (11, 1, 4), (12, 2, 12), (31, 2, 12), (32, 3, 32)];
        for (bytes, rows, size) in expected {
            assert_eq!(fitting(&texts, 9, bytes), (rows, size), "{bytes}");
        }
        assert_eq!(fitting(&texts, 9, u64::MAX), (4, 36));
        assert_eq!(fitting(&texts, 2, u64::MAX), (2, 12));
        // Only the rows of a slice count.
        assert_eq!(fitting(&texts.slice(2, 2), 9, 23), (1, 20));
        assert_eq!(fitting(&texts.slice(1, 0), 9, 23), (0, 0));
    }

    #[test]
    fn the_values_of_all_types_count() {
        let lists = [Some(vec![Some(1), Some(2), None]), None, Some(vec![Some(3)])];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int16Type, _, _>(lists));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
        let field = |name, of: &ArrayRef| Arc::new(Field::new(name, of.data_type().clone(), true));
        let group = StructArray::from(vec![
            (field("numbers", &numbers), Arc::clone(&numbers)),
            (field("flags", &flags), flags),
        ]);
        for (column, sizes) in [
            (lists, [10, 14, 20]),
            (numbers, [8, 16, 24]),
            (Arc::new(group) as ArrayRef, [9, 18, 27]),
        ] {
            let table = table(vec![column]);
            for (rows, size) in (1..).zip(sizes) {
                assert_eq!(fitting(&table, rows, u64::MAX), (rows, size));
            }
        }
    }
}
