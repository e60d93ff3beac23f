//! Matches a table's columns to slots and checks their sizes.

use std::collections::HashSet;

use outrigger_core::Failure;

use super::{
    Matrix, Source, Table,
    column::{IntegerColumn, NumberColumn, Rows, SparseColumn, TextColumn},
};
use crate::{place::Place, plan::Fields, transcode::unknown::Unknown, value::SparseCells};

impl Table<'_> {
    /// Checks the columns' sizes and finds the column of every slot.
    pub(in crate::transcode) fn sources(
        &mut self,
        count: usize,
        fields: &Fields,
        unknown: &mut Unknown,
        place: &Place,
    ) -> Result<Vec<Option<Source>>, Failure> {
        let sources = vec![None; fields.fields.len()];
        let mut finder =
            Finder { count, fields, unknown, place, sources, strangers: HashSet::new() };
        if let Some(numbers) = &mut self.numbers {
            finder.matrix(numbers)?;
        }
        for (index, TextColumn { name, values, rows }) in self.texts.iter().enumerate() {
            let path = || format!("treatment_table.texts[{index}]");
            finder.column(name.as_bytes(), path, (values.len(), rows), Source::Text(index))?;
        }
        for (index, IntegerColumn { name, values, rows }) in self.integers.iter().enumerate() {
            let path = || format!("treatment_table.integers[{index}]");
            finder.column(name.as_bytes(), path, (values.len(), rows), Source::Integer(index))?;
        }
        for (index, NumberColumn { name, values, rows }) in self.lists.iter().enumerate() {
            let path = || format!("treatment_table.lists[{index}]");
            let found = finder.numbers(values, path)?;
            finder.column(name.as_bytes(), path, (found, rows), Source::Numbers(index))?;
        }
        for (index, SparseColumn { name, values, rows }) in self.sparse.iter().enumerate() {
            let path = || format!("treatment_table.sparse[{index}]");
            finder.check_weights(values, path)?;
            finder.column(name.as_bytes(), path, (values.len(), rows), Source::Sparse(index))?;
        }
        Ok(finder.sources)
    }
}

impl Matrix<'_> {
    fn check_widths(&self, place: &Place) -> Result<u64, Failure> {
        let path = "treatment_table.numbers.widths";
        if self.widths.is_empty() {
            return Ok(self.names.len() as u64);
        }
        if self.widths.len() != self.names.len() {
            let (widths, names) = (self.widths.len(), self.names.len());
            return Err(place.malformed(path, format!("{widths} widths for {names} names")));
        }
        if self.widths.contains(&0) {
            return Err(place.malformed(path, "a width of 0"));
        }
        Ok(self.widths.iter().copied().map(u64::from).sum())
    }
}

/// Matches columns to slots.
struct Finder<'f, 'a> {
    count: usize,
    fields: &'f Fields,
    unknown: &'f mut Unknown,
    place: &'f Place,
    sources: Vec<Option<Source>>,
    /// Columns that the model does not name.
    strangers: HashSet<&'a [u8]>,
}

impl<'a> Finder<'_, 'a> {
    fn matrix(&mut self, matrix: &mut Matrix<'a>) -> Result<(), Failure> {
        let stride = matrix.check_widths(self.place)?;
        let expected = 4 * u128::from(stride) * self.count as u128;
        let path = "treatment_table.numbers";
        let values = || format!("{path}.values");
        self.check_size(values, matrix.values.len(), expected, "bytes")?;
        self.check_validity(|| path.to_owned(), matrix.validity, matrix.names.len())?;
        matrix.stride = stride as usize;
        let mut offset = 0;
        for (column, name) in matrix.names.iter().enumerate() {
            let width = matrix.width(column);
            let source = Source::Number { column, offset, width };
            let present = |row| matrix.is_valid(row, column);
            self.place(name, || format!("{path}.names[{column}]"), source, present)?;
            offset += width;
        }
        Ok(())
    }

    /// Checks the sizes of a column with `found` values and assigns it to its slot.
    fn column(
        &mut self,
        name: &'a [u8],
        path: impl Fn() -> String,
        (found, rows): (usize, &Rows<'_>),
        source: Source,
    ) -> Result<(), Failure> {
        if rows.offsets.is_empty() {
            let expected = self.count as u128 * u128::from(rows.width.max(1));
            self.check_size(|| format!("{}.values", path()), found, expected, "values")?;
        } else {
            self.check_offsets(&path, found, rows)?;
        }
        self.check_validity(&path, rows.validity, 1)?;
        self.place(name, || format!("{}.name", path()), source, |row| rows.is_valid(row))
    }

    /// The number of float32 in these bytes.
    fn numbers(&self, values: &[u8], path: impl Fn() -> String) -> Result<usize, Failure> {
        if values.len().is_multiple_of(4) {
            return Ok(values.len() / 4);
        }
        let message = format!("{} bytes are no whole number of float32", values.len());
        Err(self.place.malformed(format!("{}.values", path()), message))
    }

    /// Checks that a sparse column has ids or names, and a weight for each or none.
    fn check_weights(
        &self,
        values: &SparseCells<'_>,
        path: impl Fn() -> String,
    ) -> Result<(), Failure> {
        if !values.ids.is_empty() && !values.names.is_empty() {
            let message = "ids and names exclude each other";
            return Err(self.place.malformed(format!("{}.names", path()), message));
        }
        let (found, expected) = (values.weights.len(), 4 * values.len());
        if found == 0 || found == expected {
            return Ok(());
        }
        let message = format!("{found} bytes, the weights of {} ids need {expected}", values.len());
        Err(self.place.malformed(format!("{}.weights", path()), message))
    }

    /// Checks the row offsets of a column with `found` values.
    fn check_offsets(
        &self,
        path: impl Fn() -> String,
        found: usize,
        rows: &Rows<'_>,
    ) -> Result<(), Failure> {
        let place = || format!("{}.row_offsets", path());
        if rows.width > 0 {
            return Err(self.place.malformed(place(), "row_offsets and width exclude each other"));
        }
        self.check_size(place, rows.offsets.len(), self.count as u128 + 1, "row offsets")?;
        let ends = (rows.offsets.first(), rows.offsets.last().map(|last| *last as usize));
        if rows.offsets.is_sorted() && ends == (Some(&0), Some(found)) {
            return Ok(());
        }
        let message = format!("do not rise from 0 to the number of values, {found}");
        Err(self.place.malformed(place(), message))
    }

    fn place(
        &mut self,
        name: &'a [u8],
        path: impl Fn() -> String,
        source: Source,
        present: impl Fn(usize) -> bool,
    ) -> Result<(), Failure> {
        let slot = self.fields.keys.find(name);
        let repeated = match slot {
            Some(slot) => self.sources[slot].replace(source).is_some(),
            None => !self.strangers.insert(name),
        };
        if repeated {
            let name = String::from_utf8_lossy(name);
            return Err(self.place.malformed(path(), format!("a second column {name:?}")));
        }
        if slot.is_none() {
            let count = (0..self.count).filter(|row| present(*row)).count();
            self.unknown.add(name, count);
        }
        Ok(())
    }

    fn check_size(
        &self,
        path: impl Fn() -> String,
        found: usize,
        expected: u128,
        unit: &str,
    ) -> Result<(), Failure> {
        if found as u128 == expected {
            return Ok(());
        }
        let message = format!("{found} {unit}, {} treatments need {expected}", self.count);
        Err(self.place.malformed(path(), message))
    }

    fn check_validity(
        &self,
        path: impl Fn() -> String,
        validity: &[u8],
        columns: usize,
    ) -> Result<(), Failure> {
        if validity.is_empty() {
            return Ok(());
        }
        let expected = (self.count as u128 * columns as u128).div_ceil(8);
        self.check_size(|| format!("{}.validity", path()), validity.len(), expected, "bytes")
    }
}
