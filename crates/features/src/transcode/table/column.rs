//! Text and integer columns. Their values are stored in memory, which takes at most eight
//! times their size in the request; the shortest values take the most.

use super::{super::texts, DEPTH};
use crate::wire::{Malformed, Reader, WireType, expect};

#[derive(Debug, Default)]
pub(super) struct TextColumn<'a> {
    pub(super) name: &'a str,
    pub(super) values: Vec<&'a [u8]>,
    pub(super) width: u32,
    pub(super) validity: &'a [u8],
}

#[derive(Debug, Default)]
pub(super) struct IntegerColumn<'a> {
    pub(super) name: &'a str,
    pub(super) values: Vec<i64>,
    pub(super) width: u32,
    pub(super) validity: &'a [u8],
}

impl<'a> TextColumn<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        /// The key of `values`.
        const VALUES: u8 = 0x12;
        let (mut column, mut rest) = (Self::default(), Reader::new(body));
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => column.name = rest.text_field(wire_type)?,
                (2, wire_type) => {
                    expect(wire_type, WireType::Bytes)?;
                    let (run, count) = texts::run(&mut rest, VALUES)?;
                    make_room(&mut column.values, count);
                    column.values.extend(texts::of_run(run, VALUES));
                }
                (3, wire_type) => column.width = rest.varint_field(wire_type)? as u32,
                (4, wire_type) => column.validity = rest.bytes_field(wire_type)?,
                (number, wire_type) => rest.skip(number, wire_type, DEPTH)?,
            }
        }
        Ok(column)
    }
}

impl<'a> IntegerColumn<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let (mut column, mut rest) = (Self::default(), Reader::new(body));
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => column.name = rest.text_field(wire_type)?,
                (2, wire_type) => {
                    let values = &mut column.values;
                    collect_varints(&mut rest, wire_type, values, u64::cast_signed)?;
                }
                (3, wire_type) => column.width = rest.varint_field(wire_type)? as u32,
                (4, wire_type) => column.validity = rest.bytes_field(wire_type)?,
                (number, wire_type) => rest.skip(number, wire_type, DEPTH)?,
            }
        }
        Ok(column)
    }
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
