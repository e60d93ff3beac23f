//! The columnar form of treatments, read in place and checked.

mod column;
mod names;

use outrigger_core::Failure;

use super::{request::Parts, texts::Texts};
use crate::{
    place::Place,
    value::{Scalar, Value, float_at},
    wire::{MAX_DEPTH, Malformed, Reader, WireType, expect},
};
use column::{IntegerColumn, NumberColumn, SparseColumn, TextColumn, collect_varints};

/// A table's columns, as sent.
#[derive(Debug, Default)]
pub(super) struct Table<'a> {
    /// The ids of the treatments, up to the limit of a call.
    ids: Texts<'a>,
    count: u32,
    numbers: Option<Matrix<'a>>,
    /// Together with `integers`, `lists` and `sparse`, at most the maximum number of columns.
    texts: Vec<TextColumn<'a>>,
    integers: Vec<IntegerColumn<'a>>,
    lists: Vec<NumberColumn<'a>>,
    sparse: Vec<SparseColumn<'a>>,
    /// The number of these columns sent.
    sent: usize,
}

/// The limits on the parts of a table that are stored.
#[derive(Debug, Clone, Copy)]
struct Most {
    treatments: usize,
    columns: usize,
}

/// Number columns: row-major float32.
#[derive(Debug, Default)]
pub(super) struct Matrix<'a> {
    names: Texts<'a>,
    pub(super) values: &'a [u8],
    widths: Vec<u32>,
    validity: &'a [u8],
    /// Elements per row.
    pub(super) stride: usize,
}

/// The column that a slot is filled from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Number {
        column: usize,
        offset: usize,
        width: usize,
    },
    Text(usize),
    Integer(usize),
    /// A position in `lists`.
    Numbers(usize),
    Sparse(usize),
}

const DEPTH: u32 = MAX_DEPTH - 2;

impl<'a> Table<'a> {
    /// Reads the parts of a table.
    pub(super) fn read(
        parts: &Parts<'a>,
        max_treatments: usize,
        max_columns: usize,
    ) -> Result<Self, Malformed> {
        let most = Most { treatments: max_treatments, columns: max_columns };
        let mut table = Self::default();
        for part in parts {
            let mut rest = Reader::new(part);
            while !rest.is_empty() {
                let (number, wire_type) = rest.key()?;
                table.field(number, wire_type, &mut rest, most)?;
            }
        }
        Ok(table)
    }

    fn field(
        &mut self,
        number: u32,
        wire_type: WireType,
        rest: &mut Reader<'a>,
        most: Most,
    ) -> Result<(), Malformed> {
        match number {
            1 => {
                expect(wire_type, WireType::Bytes)?;
                self.ids.read(rest, most.treatments)?;
            }
            2 => {
                let matrix = self.numbers.get_or_insert_default();
                matrix.merge(rest.bytes_field(wire_type)?)?;
            }
            3 | 4 | 6 | 7 => {
                let body = rest.bytes_field(wire_type)?;
                self.sent += 1;
                let kept = self.sent <= most.columns;
                match number {
                    3 => push_if(kept, TextColumn::read(body)?, &mut self.texts),
                    4 => push_if(kept, IntegerColumn::read(body)?, &mut self.integers),
                    6 => push_if(kept, NumberColumn::read(body)?, &mut self.lists),
                    _ => push_if(kept, SparseColumn::read(body)?, &mut self.sparse),
                }
            }
            5 => self.count = rest.varint_field(wire_type)? as u32,
            _ => rest.skip(number, wire_type, DEPTH + 1)?,
        }
        Ok(())
    }

    /// The number of columns sent.
    pub(super) fn columns(&self) -> usize {
        self.sent + self.numbers.as_ref().map_or(0, |numbers| numbers.names.len())
    }

    /// The number of treatments that the table declares.
    pub(super) fn count(&self, place: &Place) -> Result<usize, Failure> {
        let (ids, count) = (self.ids.len(), self.count as usize);
        if ids > 0 && count > 0 && ids != count {
            let message = format!("{ids} ids for {count} treatments");
            return Err(place.malformed("treatment_table.ids", message));
        }
        Ok(ids.max(count))
    }

    /// The ids of the treatments, in UTF-8; empty if the table has none.
    pub(super) fn ids(&self) -> impl Iterator<Item = &'a [u8]> {
        self.ids.iter().chain(std::iter::repeat(&[][..]))
    }

    /// The number columns.
    pub(super) fn matrix(&self) -> Option<&Matrix<'a>> {
        self.numbers.as_ref()
    }

    /// The value of a source for a row; `None` is absence.
    pub(super) fn value(&self, source: Source, row: usize) -> Option<Value<'_>> {
        match source {
            Source::Number { column, offset, width } => {
                let matrix = self.numbers.as_ref()?;
                matrix.is_valid(row, column).then(|| matrix.value(row, offset, width))
            }
            Source::Text(index) => {
                let TextColumn { values, rows, .. } = &self.texts[index];
                rows.is_valid(row).then(|| match rows.are_scalar() {
                    true => Value::One(Scalar::Text(values[row])),
                    false => Value::Slices(&values[rows.range(row)]),
                })
            }
            Source::Integer(index) => {
                let IntegerColumn { values, rows, .. } = &self.integers[index];
                rows.is_valid(row).then(|| match rows.are_scalar() {
                    true => Value::One(Scalar::Integer(values[row])),
                    false => Value::Integers(&values[rows.range(row)]),
                })
            }
            Source::Numbers(index) => {
                let NumberColumn { values, rows, .. } = &self.lists[index];
                rows.is_valid(row).then(|| match (rows.are_scalar(), rows.range(row)) {
                    (true, _) => Value::One(Scalar::Real(float_at(values, row).into())),
                    (false, at) => Value::PackedFloats(&values[4 * at.start..4 * at.end]),
                })
            }
            Source::Sparse(index) => {
                let SparseColumn { values, rows, .. } = &self.sparse[index];
                let range = rows.is_valid(row).then(|| rows.range(row))?;
                Some(Value::SparseCells(values, range.start, range.len()))
            }
        }
    }
}

/// Keeps a column unless there are too many.
fn push_if<T>(kept: bool, column: T, columns: &mut Vec<T>) {
    if kept {
        columns.push(column);
    }
}

impl<'a> Matrix<'a> {
    fn merge(&mut self, body: &'a [u8]) -> Result<(), Malformed> {
        let mut rest = Reader::new(body);
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => {
                    expect(wire_type, WireType::Bytes)?;
                    self.names.read(&mut rest, usize::MAX)?;
                }
                (2, wire_type) => self.values = rest.bytes_field(wire_type)?,
                (3, wire_type) => {
                    collect_varints(&mut rest, wire_type, &mut self.widths, |width| width as u32)?;
                }
                (4, wire_type) => self.validity = rest.bytes_field(wire_type)?,
                (number, wire_type) => rest.skip(number, wire_type, DEPTH)?,
            }
        }
        Ok(())
    }

    /// Whether no value is absent.
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
}

/// Whether a bit is set; in an empty bitmap every bit counts as set.
fn is_valid(validity: &[u8], bit: usize) -> bool {
    validity.get(bit / 8).is_none_or(|byte| byte >> (bit % 8) & 1 == 1)
}
