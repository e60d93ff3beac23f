//! The lists of a tensor's rows while they are written.

use std::ops::Range;

use outrigger_core::DType;

use super::{Buffer, buffer::WEIGHTED};

/// A list for each row, or for each feature of a sparse row. Their elements stand one after the
/// other as they were written; those of a row that was written again, or dropped, stay until the end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowLists {
    pub(super) items: Box<Buffer>,
    /// The elements of each row.
    pub(super) rows: Vec<Range<usize>>,
}

impl RowLists {
    /// Creates an empty buffer with room for `rows` lists.
    pub(crate) fn new(dtype: DType, rows: usize) -> Self {
        Self { items: Box::new(Buffer::new(dtype, rows)), rows: Vec::with_capacity(rows) }
    }

    /// Creates an empty buffer with room for `lists` lists of ids with weights.
    pub(crate) fn weighted(lists: usize) -> Self {
        let items = Buffer::Fixed { bytes: Vec::with_capacity(WEIGHTED * lists), size: WEIGHTED };
        Self { items: Box::new(items), rows: Vec::with_capacity(lists) }
    }

    /// The ids, with their weights, in the lists of one sparse row of `width` lists.
    pub(crate) fn ids(&self, row: usize, width: usize) -> impl Iterator<Item = &[u8; WEIGHTED]> {
        let lists = &self.rows[row * width..(row + 1) * width];
        lists.iter().flat_map(|range| self.items.bytes_of(range).as_chunks().0)
    }

    /// The number of lists.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The number of ids in the lists of one sparse row of `width` lists.
    pub(crate) fn count(&self, row: usize, width: usize) -> usize {
        self.rows[row * width..(row + 1) * width].iter().map(Range::len).sum()
    }

    /// Starts the list of a row.
    pub(super) fn begin(&mut self, row: usize) {
        let end = self.items.len();
        self.rows[row] = end..end;
    }

    /// Appends to the list of a row, which was started last.
    pub(super) fn push(&mut self, row: usize, append: impl FnOnce(&mut Buffer)) {
        append(&mut self.items);
        self.rows[row].end = self.items.len();
    }

    /// The number of elements of each row, as little-endian int64.
    pub(crate) fn lengths(&self) -> Vec<u8> {
        self.rows.iter().flat_map(|row| (row.len() as u64).to_le_bytes()).collect()
    }

    /// The elements of all rows, in order.
    pub(super) fn into_items(self) -> Buffer {
        let Self { items, rows } = self;
        let mut end = 0;
        let follows = |row: &Range<usize>| {
            row.is_empty() || {
                let start = std::mem::replace(&mut end, row.end);
                start == row.start
            }
        };
        if rows.iter().all(follows) && end == items.len() {
            return *items;
        }
        items.gathered(&rows)
    }
}

#[cfg(test)]
mod tests {
    use outrigger_core::Content;

    use super::{
        super::{Element, Sink},
        *,
    };
    use crate::fixtures::{floats, longs, strings};

    fn write(buffer: &mut Buffer, row: usize, values: &[f32]) {
        let mut cursor = buffer.cursor(row);
        cursor.begin();
        values.iter().for_each(|value| cursor.push(Element::Float32(*value)));
    }

    fn lengths(buffer: &Buffer) -> Content {
        let Buffer::Lists(lists) = buffer else { panic!("lists") };
        Content::Bytes(lists.lengths().into())
    }

    #[test]
    fn lists_stand_in_the_order_of_their_rows() {
        let mut buffer = Buffer::Lists(RowLists::new(DType::Float32, 3));
        buffer.resize(3);
        write(&mut buffer, 0, &[1.0, 2.0]);
        write(&mut buffer, 2, &[3.0]);
        assert_eq!(lengths(&buffer), longs(&[2, 0, 1]));
        assert_eq!(buffer.into_content(), floats(&[1.0, 2.0, 3.0]));
    }

    #[test]
    fn a_row_that_is_written_again_or_dropped_leaves_nothing() {
        let mut buffer = Buffer::Lists(RowLists::new(DType::Float32, 0));
        buffer.resize(4);
        write(&mut buffer, 1, &[9.0, 9.0]);
        write(&mut buffer, 0, &[1.0]);
        write(&mut buffer, 1, &[2.0]);
        write(&mut buffer, 3, &[9.0]);
        buffer.resize(2);
        let buffer = buffer.pad(&[1, 1], 2);
        assert_eq!(lengths(&buffer), longs(&[1, 0, 1, 0]));
        assert_eq!(buffer.into_content(), floats(&[1.0, 2.0]));
    }

    #[test]
    fn texts_are_gathered_too() {
        let mut buffer = Buffer::Lists(RowLists::new(DType::String, 0));
        buffer.resize(2);
        for (row, text) in [(1, &b"b"[..]), (0, b"a")] {
            let mut cursor = buffer.cursor(row);
            cursor.begin();
            cursor.push(Element::Text(text));
        }
        assert_eq!(buffer.into_content(), strings(&["a", "b"]));
    }
}
