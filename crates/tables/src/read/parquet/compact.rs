//! Thrift's compact protocol, in which the footer and the headers of pages are written.
//!
//! <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>

use std::io::{self, Read};

/// The most structs, lists and maps within each other.
const MAX_DEPTH: u32 = 16;

/// The types of values.
pub(super) const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
pub(super) const STRUCT: u8 = 12;

/// Reads values of the compact protocol.
pub(super) struct Compact<R> {
    pub(super) input: R,
}

impl<R: Read> Compact<R> {
    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.input.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(invalid("a struct has an integer of too many bytes"))
    }

    /// An integer of more than a byte.
    pub(super) fn integer(&mut self, of: u8) -> io::Result<i64> {
        if !(I16..=I64).contains(&of) {
            return Err(invalid("a struct has a field of another type"));
        }
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Calls `field` with the id and the type of each field of a struct. It must read the value.
    pub(super) fn fields(
        &mut self,
        depth: u32,
        mut field: impl FnMut(&mut Self, i64, u8) -> io::Result<()>,
    ) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(invalid("structs are nested too deeply"));
        }
        let mut id = 0_i64;
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Ok(());
            }
            id = match byte >> 4 {
                0 => self.integer(I16)?,
                delta => id.wrapping_add(delta.into()),
            };
            field(self, id, byte & 0x0f)?;
        }
    }

    pub(super) fn skip(&mut self, of: u8, depth: u32) -> io::Result<()> {
        match of {
            TRUE | FALSE => Ok(()),
            BYTE => self.byte().map(drop),
            I16..=I64 => self.varint().map(drop),
            DOUBLE => self.skip_bytes(8),
            BINARY => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            LIST | SET => self.elements(|input, of| input.skip_element(of, depth)),
            MAP => {
                let count = self.varint()?;
                let of = if count == 0 { 0 } else { self.byte()? };
                (0..count).try_for_each(|_| {
                    self.skip_element(of >> 4, depth)?;
                    self.skip_element(of & 0x0f, depth)
                })
            }
            STRUCT => self.fields(depth, |input, _, of| input.skip(of, depth + 1)),
            _ => Err(invalid("a struct has a field of an unknown type")),
        }
    }

    /// Calls `element` with the type of each element of a list. It must read the element.
    pub(super) fn elements(
        &mut self,
        mut element: impl FnMut(&mut Self, u8) -> io::Result<()>,
    ) -> io::Result<()> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { (head >> 4).into() };
        (0..count).try_for_each(|_| element(self, head & 0x0f))
    }

    /// Skips an element of a list or map, where a boolean takes a byte.
    fn skip_element(&mut self, of: u8, depth: u32) -> io::Result<()> {
        if depth >= MAX_DEPTH {
            return Err(invalid("structs are nested too deeply"));
        }
        match of {
            TRUE | FALSE => self.byte().map(drop),
            of => self.skip(of, depth + 1),
        }
    }

    fn skip_bytes(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.input.by_ref().take(count), &mut io::sink())?;
        if skipped == count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

pub(super) fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
