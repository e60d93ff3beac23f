//! Columns of a single feature. Texts, integers and ids are stored in memory, which takes at most
//! eight times their size in the request; the shortest values take the most.

use std::ops::Range;

use super::{super::texts, DEPTH, is_valid};
use crate::{
    value::SparseCells,
    wire::{Malformed, Reader, WireType, expect},
};

/// A column with its values as the request sends them.
#[derive(Debug, Default)]
pub(super) struct Column<'a, V> {
    pub(super) name: &'a str,
    pub(super) values: V,
    pub(super) rows: Rows<'a>,
}

/// The values of each row of a column.
#[derive(Debug, Default)]
pub(super) struct Rows<'a> {
    pub(super) width: u32,
    pub(super) validity: &'a [u8],
    /// For lists, the start of each row and the end of the last one.
    pub(super) offsets: Vec<u32>,
}

/// The values of a column.
pub(super) trait Cells<'a>: Default {
    /// Adds the values of a field, which is not one of the column's name and rows.
    fn add(
        &mut self,
        number: u32,
        wire_type: WireType,
        rest: &mut Reader<'a>,
    ) -> Result<(), Malformed>;
}

pub(super) type TextColumn<'a> = Column<'a, Vec<&'a [u8]>>;
pub(super) type IntegerColumn<'a> = Column<'a, Vec<i64>>;
/// Little-endian float32.
pub(super) type NumberColumn<'a> = Column<'a, &'a [u8]>;
pub(super) type SparseColumn<'a> = Column<'a, SparseCells<'a>>;

impl Rows<'_> {
    pub(super) fn is_valid(&self, row: usize) -> bool {
        is_valid(self.validity, row)
    }

    /// True if every row has one value, which is no list.
    pub(super) fn are_scalar(&self) -> bool {
        self.width <= 1 && self.offsets.is_empty()
    }

    /// The positions of a row's values.
    pub(super) fn range(&self, row: usize) -> Range<usize> {
        match self.offsets.get(row..row + 2) {
            Some(ends) => ends[0] as usize..ends[1] as usize,
            None => {
                let width = self.width.max(1) as usize;
                row * width..(row + 1) * width
            }
        }
    }
}

impl<'a, V: Cells<'a>> Column<'a, V> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let (mut column, mut rest) = (Self::default(), Reader::new(body));
        let rows = &mut column.rows;
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => column.name = rest.text_field(wire_type)?,
                (3, wire_type) => rows.width = rest.varint_field(wire_type)? as u32,
                (4, wire_type) => rows.validity = rest.bytes_field(wire_type)?,
                (5, wire_type) => {
                    let offset = |offset| offset as u32;
                    collect_varints(&mut rest, wire_type, &mut rows.offsets, offset)?;
                }
                (number, wire_type) => column.values.add(number, wire_type, &mut rest)?,
            }
        }
        Ok(column)
    }
}

impl<'a> Cells<'a> for Vec<&'a [u8]> {
    fn add(
        &mut self,
        number: u32,
        wire_type: WireType,
        rest: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        /// The key of `values`.
        const VALUES: u8 = 0x12;
        if number != 2 {
            return rest.skip(number, wire_type, DEPTH);
        }
        collect_texts::<VALUES>(rest, wire_type, self)
    }
}

impl<'a> Cells<'a> for Vec<i64> {
    fn add(
        &mut self,
        number: u32,
        wire_type: WireType,
        rest: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        if number != 2 {
            return rest.skip(number, wire_type, DEPTH);
        }
        collect_varints(rest, wire_type, self, u64::cast_signed)
    }
}

impl<'a> Cells<'a> for &'a [u8] {
    fn add(
        &mut self,
        number: u32,
        wire_type: WireType,
        rest: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        if number != 2 {
            return rest.skip(number, wire_type, DEPTH);
        }
        *self = rest.bytes_field(wire_type)?;
        Ok(())
    }
}

impl<'a> Cells<'a> for SparseCells<'a> {
    fn add(
        &mut self,
        number: u32,
        wire_type: WireType,
        rest: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        /// The key of `names`.
        const NAMES: u8 = 0x3a;
        match number {
            2 => collect_varints(rest, wire_type, &mut self.ids, |id| id),
            6 => {
                self.weights = rest.bytes_field(wire_type)?;
                Ok(())
            }
            7 => collect_texts::<NAMES>(rest, wire_type, &mut self.names),
            _ => rest.skip(number, wire_type, DEPTH),
        }
    }
}

/// Adds a text, whose field has this key, and those that follow it.
fn collect_texts<'a, const KEY: u8>(
    rest: &mut Reader<'a>,
    wire_type: WireType,
    values: &mut Vec<&'a [u8]>,
) -> Result<(), Malformed> {
    expect(wire_type, WireType::Bytes)?;
    let (run, count) = texts::run(rest, KEY)?;
    make_room(values, count);
    values.extend(texts::of_run(run, KEY));
    Ok(())
}

/// Adds the values of a repeated field: one, or packed many.
pub(super) fn collect_varints<T>(
    rest: &mut Reader<'_>,
    wire_type: WireType,
    values: &mut Vec<T>,
    value: impl Fn(u64) -> T,
) -> Result<(), Malformed> {
    if wire_type == WireType::Bytes {
        let mut packed = *rest;
        // The last byte of a varint is the only one whose high bit is not set.
        let ends = packed.bytes()?.iter().filter(|byte| **byte < 0x80);
        make_room(values, ends.count());
    }
    rest.varints_field(wire_type, |varint| values.push(value(varint)))
}

/// Reserves room for `more` values: exactly at first, and with spare room if the values
/// come in pieces.
fn make_room<T>(values: &mut Vec<T>, more: usize) {
    if values.capacity() - values.len() < more {
        values.reserve_exact(more.max(values.len() / 8));
    }
}
