//! Lists merged from their parts and encoded as common libraries do, so that they take no
//! more memory than they did in the request.

use outrigger_proto::raw::write::{put_bytes, put_varint};

use super::{merged::ListKind, object};
use crate::{
    value::{Scalar, SparseList, Value},
    wire::{MAX_DEPTH, Malformed, Reader, WireType},
};

/// The merged lists of one row.
#[derive(Debug, Default)]
pub(super) struct Lists {
    bytes: Vec<u8>,
}

/// The position of a merged list.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    kind: ListKind,
    start: usize,
    end: usize,
    count: usize,
}

impl Lists {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds a list that has been validated.
    pub(super) fn add(&mut self, kind: ListKind, parts: &[&[u8]]) -> Result<List, Malformed> {
        let (start, mut count) = (self.bytes.len(), 0);
        if kind == ListKind::Sparse {
            put_sparse(parts, &mut self.bytes)?;
            return Ok(List { kind, start, end: self.bytes.len(), count });
        }
        for part in parts {
            let mut rest = Reader::new(part);
            while !rest.is_empty() {
                match rest.key()? {
                    (1, wire_type) => {
                        count += elements(kind, wire_type, &mut rest, &mut self.bytes)?
                    }
                    (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
                }
            }
        }
        Ok(List { kind, start, end: self.bytes.len(), count })
    }

    pub(super) fn get(&self, list: List) -> Value<'_> {
        let (bytes, count) = (&self.bytes[list.start..list.end], list.count);
        match list.kind {
            ListKind::Numbers => Value::PackedFloats(bytes),
            ListKind::Reals => Value::PackedReals(bytes),
            ListKind::Integers => Value::PackedIntegers(bytes, count),
            ListKind::Texts => Value::EncodedTexts(bytes, count),
            ListKind::Values => Value::Mixed(bytes, count),
            ListKind::Sparse => {
                let read = SparseList::read(bytes);
                read.map_or(Value::One(Scalar::Other), |(list, count)| Value::Sparse(list, count))
            }
        }
    }
}

/// Writes the elements of one field and returns their number.
fn elements(
    kind: ListKind,
    wire_type: WireType,
    rest: &mut Reader<'_>,
    to: &mut Vec<u8>,
) -> Result<usize, Malformed> {
    let mut fixed = |single, size| {
        let elements = rest.fixed_field(wire_type, single, size)?;
        to.extend_from_slice(elements);
        Ok(elements.len() / size)
    };
    match kind {
        ListKind::Numbers => return fixed(WireType::Fixed32, 4),
        ListKind::Reals => return fixed(WireType::Fixed64, 8),
        ListKind::Integers => {
            let mut count = 0;
            rest.varints_field(wire_type, |integer| {
                put_varint(integer, to);
                count += 1;
            })?;
            return Ok(count);
        }
        ListKind::Sparse => unreachable!("a sparse list has several fields"),
        ListKind::Texts => put_text(0x0a, rest.bytes_field(wire_type)?, to),
        ListKind::Values => object::put_element(rest.bytes_field(wire_type)?, to)?,
    }
    Ok(1)
}

/// Writes the fields of a sparse list in the order of their numbers.
fn put_sparse(parts: &[&[u8]], to: &mut Vec<u8>) -> Result<(), Malformed> {
    let (mut ids, mut weights, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        let mut rest = Reader::new(part);
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => rest.varints_field(wire_type, |id| put_varint(id, &mut ids))?,
                (2, wire_type) => {
                    weights.extend_from_slice(rest.fixed_field(wire_type, WireType::Fixed32, 4)?);
                }
                (3, wire_type) => put_text(0x1a, rest.bytes_field(wire_type)?, &mut names),
                (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
            }
        }
    }
    put_bytes(1, &ids, to);
    put_bytes(2, &weights, to);
    to.extend_from_slice(&names);
    Ok(())
}

/// Writes a text, preceded by the key of its field.
fn put_text(key: u8, text: &[u8], to: &mut Vec<u8>) {
    to.push(key);
    put_varint(text.len() as u64, to);
    to.extend_from_slice(text);
}
