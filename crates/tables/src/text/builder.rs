//! A column while it is read.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, Field};
use outrigger_json::{Cursor, deeper};

use super::{
    Leaf, Lists, TextColumn,
    values::{Fault, Values, misfit},
};

/// The values of a column in the rows that were read.
#[derive(Debug)]
pub(super) struct Builder {
    column: TextColumn,
    values: Values,
    /// For each value, true if there is one.
    present: Vec<bool>,
    /// The lists around the values, outermost first.
    levels: Vec<Level>,
    /// The lengths of the levels and of the values before the last row.
    start: Vec<usize>,
}

/// Lists of one depth.
#[derive(Debug, Default)]
struct Level {
    /// For each list, the number of items of the next level up to its end.
    ends: Vec<i32>,
    present: Vec<bool>,
}

impl Builder {
    pub(super) fn new(column: TextColumn) -> Self {
        let levels: Vec<_> = (0..column.levels()).map(|_| Level::default()).collect();
        let start = vec![0; levels.len() + 1];
        Self { values: Values::new(column.leaf), present: Vec::new(), levels, start, column }
    }

    /// The column's name.
    pub(super) fn name(&self) -> &str {
        &self.column.name
    }

    /// Begins a row.
    pub(super) fn begin(&mut self) {
        for level in 0..self.start.len() {
            self.start[level] = self.len(level);
        }
    }

    /// Removes what was read of the row that was begun last.
    pub(super) fn undo(&mut self) {
        for (level, start) in self.levels.iter_mut().zip(&self.start) {
            level.ends.truncate(*start);
            level.present.truncate(*start);
        }
        let count = self.start[self.levels.len()];
        self.present.truncate(count);
        self.values.truncate(count);
    }

    /// Completes the row that was begun last, which has no value if none was read.
    pub(super) fn complete(&mut self) {
        if self.len(0) == self.start[0] {
            self.absent(0);
        }
    }

    /// The number of lists of a level, or of values after the last level.
    fn len(&self, level: usize) -> usize {
        self.levels.get(level).map_or(self.present.len(), |level| level.ends.len())
    }

    fn absent(&mut self, level: usize) {
        if level < self.levels.len() {
            return self.end(level, false);
        }
        self.values.absent();
        self.present.push(false);
    }

    /// Ends a list.
    fn end(&mut self, level: usize, is_present: bool) {
        // The values of a batch are far less than 2^31.
        let end = i32::try_from(self.len(level + 1)).unwrap_or(i32::MAX);
        let level = &mut self.levels[level];
        level.ends.push(end);
        level.present.push(is_present);
    }

    /// Reads the row's value of JSON, which comes next.
    ///
    /// # Errors
    /// It is no JSON, or no value of the column's type.
    pub(super) fn json(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        match self.column.lists {
            Lists::Depth(_) => self.nested(0, cursor),
            Lists::Flat if cursor.peek() == Some(b'n') => {
                cursor.word("null")?;
                self.absent(0);
                Ok(())
            }
            Lists::Flat => {
                self.flat(0, cursor)?;
                self.end(0, true);
                Ok(())
            }
        }
    }

    /// Reads the row's value from a cell of CSV.
    ///
    /// # Errors
    /// It is no value of the column's type.
    pub(super) fn cell(&mut self, cell: &str) -> Result<(), Fault> {
        let is_text = matches!(self.column.leaf, Leaf::Text | Leaf::Json);
        if cell.is_empty() || !is_text && cell.trim_ascii().is_empty() {
            self.absent(0);
            return Ok(());
        }
        let mut cursor = Cursor::new(cell.as_bytes());
        match self.column.lists {
            Lists::Depth(0) => self.text(cell),
            Lists::Flat if cursor.next() != Some(b'[') => {
                self.text(cell)?;
                self.end(0, true);
                Ok(())
            }
            _ => {
                cursor.next();
                self.json(&mut cursor)?;
                Ok(cursor.end()?)
            }
        }
    }

    fn text(&mut self, cell: &str) -> Result<(), Fault> {
        self.values.text(cell)?;
        self.present.push(true);
        Ok(())
    }

    /// Reads a list of this level, or a value after the last one.
    fn nested(&mut self, level: usize, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        if level == self.levels.len() {
            return self.leaf(cursor);
        }
        match cursor.peek() {
            Some(b'n') => {
                cursor.word("null")?;
                self.absent(level);
            }
            Some(b'[') => {
                cursor.array(|cursor| self.nested(level + 1, cursor))?;
                self.end(level, true);
            }
            _ => return Err(misfit(*cursor, "a list")),
        }
        Ok(())
    }

    /// Reads a value, or those of lists of any depth.
    fn flat(&mut self, depth: u32, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        if cursor.peek() != Some(b'[') {
            return self.leaf(cursor);
        }
        let depth = deeper(depth)?;
        cursor.array(|cursor| self.flat(depth, cursor))
    }

    #[inline]
    fn leaf(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        let is_present = cursor.peek() != Some(b'n');
        match is_present {
            true => self.values.json(cursor)?,
            false => {
                cursor.word("null")?;
                self.values.absent();
            }
        }
        self.present.push(is_present);
        Ok(())
    }

    /// The column of all rows that were completed. None are left.
    ///
    /// # Errors
    /// Arrow refuses the arrays.
    pub(super) fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let mut array = self.values.take(nulls(&mut self.present));
        for Level { ends, present } in self.levels.iter_mut().rev() {
            let offsets: Vec<i32> = std::iter::once(0).chain(std::mem::take(ends)).collect();
            let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
            let field = Arc::new(Field::new_list_field(array.data_type().clone(), true));
            array = Arc::new(ListArray::try_new(field, offsets, array, nulls(present))?);
        }
        Ok(array)
    }
}

/// The values that are absent, if any is.
fn nulls(present: &mut Vec<bool>) -> Option<NullBuffer> {
    let present = std::mem::take(present);
    present.contains(&false).then(|| NullBuffer::from(present))
}
