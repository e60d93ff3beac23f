//! The columnar form of treatments, read in place and checked.

use std::collections::HashSet;

use outrigger_core::Failure;

use super::{
    fields::Fields,
    unknown::Unknown,
    wire::{MAX_DEPTH, Malformed, Reader, WireType},
};
use crate::request::{Place, Scalar, Value, float_at};

/// A table's columns, as sent.
#[derive(Debug, Default)]
pub(super) struct Table<'a> {
    pub(super) ids: Vec<&'a str>,
    count: u32,
    numbers: Option<Matrix<'a>>,
    texts: Vec<TextColumn<'a>>,
    integers: Vec<IntegerColumn<'a>>,
}

/// Number columns: row-major float32.
#[derive(Debug, Default)]
pub(super) struct Matrix<'a> {
    names: Vec<&'a str>,
    pub(super) values: &'a [u8],
    widths: Vec<u32>,
    validity: &'a [u8],
    /// Elements a row.
    pub(super) stride: usize,
}

#[derive(Debug, Default)]
struct TextColumn<'a> {
    name: &'a str,
    values: Vec<&'a str>,
    width: u32,
    validity: &'a [u8],
}

#[derive(Debug, Default)]
struct IntegerColumn<'a> {
    name: &'a str,
    values: Vec<i64>,
    width: u32,
    validity: &'a [u8],
}

/// The column that a slot is filled from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Number { column: usize, offset: usize, width: usize },
    Text(usize),
    Integer(usize),
}

const DEPTH: u32 = MAX_DEPTH - 2;

impl<'a> Table<'a> {
    /// Reads the parts of a table.
    pub(super) fn read(parts: &[&'a [u8]]) -> Result<Self, Malformed> {
        let mut table = Self::default();
        for part in parts {
            let mut rest = Reader::new(part);
            while !rest.is_empty() {
                let (number, wire_type) = rest.key()?;
                table.field(number, wire_type, &mut rest)?;
            }
        }
        Ok(table)
    }

    fn field(
        &mut self,
        number: u32,
        wire_type: WireType,
        rest: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        match number {
            1 => self.ids.push(rest.text_field(wire_type)?),
            2 => {
                let matrix = self.numbers.get_or_insert_default();
                matrix.merge(rest.bytes_field(wire_type)?)?;
            }
            3 => self.texts.push(TextColumn::read(rest.bytes_field(wire_type)?)?),
            4 => self.integers.push(IntegerColumn::read(rest.bytes_field(wire_type)?)?),
            5 => self.count = rest.varint_field(wire_type)? as u32,
            _ => rest.skip(number, wire_type, DEPTH + 1)?,
        }
        Ok(())
    }

    /// The number of treatments the table says it has.
    pub(super) fn count(&self, place: &Place) -> Result<usize, Failure> {
        let (ids, count) = (self.ids.len(), self.count as usize);
        if ids > 0 && count > 0 && ids != count {
            let message = format!("{ids} ids for {count} treatments");
            return Err(place.malformed("treatment_table.ids", message));
        }
        Ok(ids.max(count))
    }

    /// The number columns.
    pub(super) fn matrix(&self) -> Option<&Matrix<'a>> {
        self.numbers.as_ref()
    }

    /// What a source has for a row; `None` is absence.
    pub(super) fn value(&self, source: Source, row: usize) -> Option<Value<'_>> {
        match source {
            Source::Number { column, offset, width } => {
                let matrix = self.numbers.as_ref()?;
                matrix.is_valid(row, column).then(|| matrix.value(row, offset, width))
            }
            Source::Text(index) => {
                let column = &self.texts[index];
                let width = column.width.max(1) as usize;
                is_valid(column.validity, row).then(|| match width {
                    1 => Value::One(Scalar::Text(column.values[row])),
                    _ => Value::Slices(&column.values[row * width..(row + 1) * width]),
                })
            }
            Source::Integer(index) => {
                let column = &self.integers[index];
                let width = column.width.max(1) as usize;
                is_valid(column.validity, row).then(|| match width {
                    1 => Value::One(Scalar::Integer(column.values[row])),
                    _ => Value::Integers(&column.values[row * width..(row + 1) * width]),
                })
            }
        }
    }

    /// Checks the columns' sizes and finds the column of every slot.
    pub(super) fn sources(
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
        for (index, column) in self.texts.iter().enumerate() {
            let path = format!("treatment_table.texts[{index}]");
            let found = (column.values.len(), column.width, column.validity);
            finder.column(column.name, &path, found, Source::Text(index))?;
        }
        for (index, column) in self.integers.iter().enumerate() {
            let path = format!("treatment_table.integers[{index}]");
            let found = (column.values.len(), column.width, column.validity);
            finder.column(column.name, &path, found, Source::Integer(index))?;
        }
        Ok(finder.sources)
    }
}

impl<'a> Matrix<'a> {
    fn merge(&mut self, body: &'a [u8]) -> Result<(), Malformed> {
        let mut rest = Reader::new(body);
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => self.names.push(rest.text_field(wire_type)?),
                (2, wire_type) => self.values = rest.bytes_field(wire_type)?,
                (3, wire_type) => {
                    rest.varints_field(wire_type, |width| self.widths.push(width as u32))?;
                }
                (4, wire_type) => self.validity = rest.bytes_field(wire_type)?,
                (number, wire_type) => rest.skip(number, wire_type, DEPTH)?,
            }
        }
        Ok(())
    }

    /// Whether every value is there.
    pub(super) fn is_full(&self) -> bool {
        self.validity.is_empty()
    }

    fn is_valid(&self, row: usize, column: usize) -> bool {
        is_valid(self.validity, row * self.names.len() + column)
    }

    fn value(&self, row: usize, offset: usize, width: usize) -> Value<'a> {
        let start = row * self.stride + offset;
        match width {
            1 => Value::One(Scalar::Real(float_at(self.values, start).into())),
            _ => Value::PackedFloats(&self.values[4 * start..4 * (start + width)]),
        }
    }

    /// The width of a column.
    fn width(&self, column: usize) -> usize {
        self.widths.get(column).map_or(1, |width| *width as usize)
    }

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

impl<'a> TextColumn<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let (mut column, mut rest) = (Self::default(), Reader::new(body));
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => column.name = rest.text_field(wire_type)?,
                (2, wire_type) => column.values.push(rest.text_field(wire_type)?),
                (3, wire_type) => column.width = rest.varint_field(wire_type)? as u32,
                (4, wire_type) => column.validity = rest.bytes_field(wire_type)?,
                (number, wire_type) => rest.skip(number, wire_type, DEPTH)?,
            }
        }
        Ok(column)
    }
}

impl<'a> IntegerColumn<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let (mut column, mut rest) = (Self::default(), Reader::new(body));
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => column.name = rest.text_field(wire_type)?,
                (2, wire_type) => {
                    let values = &mut column.values;
                    rest.varints_field(wire_type, |value| values.push(value.cast_signed()))?;
                }
                (3, wire_type) => column.width = rest.varint_field(wire_type)? as u32,
                (4, wire_type) => column.validity = rest.bytes_field(wire_type)?,
                (number, wire_type) => rest.skip(number, wire_type, DEPTH)?,
            }
        }
        Ok(column)
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
    strangers: HashSet<&'a str>,
}

impl<'a> Finder<'_, 'a> {
    fn matrix(&mut self, matrix: &mut Matrix<'a>) -> Result<(), Failure> {
        let stride = matrix.check_widths(self.place)?;
        let expected = 4 * u128::from(stride) * self.count as u128;
        let path = "treatment_table.numbers";
        let values = || format!("{path}.values");
        self.check_size(values, matrix.values.len(), expected, "bytes")?;
        self.check_validity(path, matrix.validity, matrix.names.len())?;
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

    /// A column of `found` values, of a width, with a bitmap.
    fn column(
        &mut self,
        name: &'a str,
        path: &str,
        (found, width, validity): (usize, u32, &[u8]),
        source: Source,
    ) -> Result<(), Failure> {
        let expected = self.count as u128 * u128::from(width.max(1));
        self.check_size(|| format!("{path}.values"), found, expected, "values")?;
        self.check_validity(path, validity, 1)?;
        self.place(name, || format!("{path}.name"), source, |row| is_valid(validity, row))
    }

    fn place(
        &mut self,
        name: &'a str,
        path: impl Fn() -> String,
        source: Source,
        present: impl Fn(usize) -> bool,
    ) -> Result<(), Failure> {
        let repeated = match self.fields.keys.find(name.as_bytes()) {
            Some(slot) => self.sources[slot].replace(source).is_some(),
            None => !self.strangers.insert(name),
        };
        if repeated {
            return Err(self.place.malformed(path(), format!("a second column {name:?}")));
        }
        if self.fields.keys.find(name.as_bytes()).is_none() {
            self.unknown.add(name, (0..self.count).filter(|row| present(*row)).count());
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

    fn check_validity(&self, path: &str, validity: &[u8], columns: usize) -> Result<(), Failure> {
        if validity.is_empty() {
            return Ok(());
        }
        let expected = (self.count as u128 * columns as u128).div_ceil(8);
        self.check_size(|| format!("{path}.validity"), validity.len(), expected, "bytes")
    }
}

/// Whether a bit is set; an empty bitmap has all of them set.
fn is_valid(validity: &[u8], bit: usize) -> bool {
    validity.get(bit / 8).is_none_or(|byte| byte >> (bit % 8) & 1 == 1)
}
