//! Protobuf's wire format, read in place. What is accepted is what prost
//! accepts: <https://protobuf.dev/programming-guides/encoding/>.

/// How often messages and groups may nest; prost's limit.
pub(crate) const MAX_DEPTH: u32 = 100;

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("it ends in the middle of a field")]
    Truncated,
    #[error("a varint is longer than 64 bits")]
    Varint,
    #[error("a field key is invalid")]
    Key,
    #[error("a field has another wire type than its type's")]
    WireType,
    #[error("a group ends that was not begun")]
    Group,
    #[error("a text is not valid UTF-8")]
    Text,
    #[error("messages are nested too deeply")]
    Depth,
}

/// How a field's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint,
    Fixed64,
    Bytes,
    StartGroup,
    EndGroup,
    Fixed32,
}

/// The part of a message that has not been read yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What has not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads over `byte`, if it is the next one.
    #[inline]
    pub(crate) fn accept(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        match *self.rest {
            [one, ref rest @ ..] if one < 0x80 => {
                self.rest = rest;
                Ok(one.into())
            }
            [low, high, ref rest @ ..] if high < 0x80 => {
                self.rest = rest;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                // The tenth byte has room for one bit.
                let fits = index < 9 || *byte < 2;
                self.rest = &self.rest[index + 1..];
                return fits.then_some(value).ok_or(Malformed::Varint);
            }
        }
        Err(if self.rest.len() < 10 { Malformed::Truncated } else { Malformed::Varint })
    }

    /// A field's number and wire type.
    pub(crate) fn key(&mut self) -> Result<(u32, WireType), Malformed> {
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed::Key)?;
        let wire_type = match key & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Bytes,
            3 => WireType::StartGroup,
            4 => WireType::EndGroup,
            5 => WireType::Fixed32,
            _ => return Err(Malformed::Key),
        };
        match key >> 3 {
            0 => Err(Malformed::Key),
            number => Ok((number, wire_type)),
        }
    }

    /// A length and so many bytes.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| Malformed::Truncated)?)
    }

    /// A length and so many bytes, which must be text.
    #[inline]
    pub(crate) fn text_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let bytes = self.bytes()?;
        if is_text(bytes) { Ok(bytes) } else { Err(Malformed::Text) }
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads over the value of a field that nobody knows, at most `depth`
    /// messages and groups deep.
    pub(crate) fn skip(
        &mut self,
        number: u32,
        wire_type: WireType,
        depth: u32,
    ) -> Result<(), Malformed> {
        if depth == 0 {
            return Err(Malformed::Depth);
        }
        match wire_type {
            WireType::Varint => self.varint().map(drop),
            WireType::Fixed64 => self.take(8).map(drop),
            WireType::Fixed32 => self.take(4).map(drop),
            WireType::Bytes => self.bytes().map(drop),
            WireType::StartGroup => self.skip_group(number, depth),
            WireType::EndGroup => Err(Malformed::Group),
        }
    }

    fn skip_group(&mut self, group: u32, depth: u32) -> Result<(), Malformed> {
        loop {
            match self.key()? {
                (number, WireType::EndGroup) if number == group => return Ok(()),
                (_, WireType::EndGroup) => return Err(Malformed::Group),
                (number, wire_type) => self.skip(number, wire_type, depth - 1)?,
            }
        }
    }

    /// The bytes of a field that must be length-delimited.
    pub(crate) fn bytes_field(&mut self, wire_type: WireType) -> Result<&'a [u8], Malformed> {
        expect(wire_type, WireType::Bytes)?;
        self.bytes()
    }

    /// The text of a field that must be length-delimited.
    pub(crate) fn text_field(&mut self, wire_type: WireType) -> Result<&'a str, Malformed> {
        expect(wire_type, WireType::Bytes)?;
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Text)
    }

    /// The value of a field that must be a varint.
    pub(crate) fn varint_field(&mut self, wire_type: WireType) -> Result<u64, Malformed> {
        expect(wire_type, WireType::Varint)?;
        self.varint()
    }

    /// The values of a repeated field: one, or packed many.
    pub(crate) fn varints_field(
        &mut self,
        wire_type: WireType,
        mut value: impl FnMut(u64),
    ) -> Result<(), Malformed> {
        if wire_type != WireType::Bytes {
            value(self.varint_field(wire_type)?);
            return Ok(());
        }
        let mut packed = Reader::new(self.bytes()?);
        while !packed.is_empty() {
            value(packed.varint()?);
        }
        Ok(())
    }

    /// The values of a repeated field of `size` bytes each: one, or packed many.
    pub(crate) fn fixed_field(
        &mut self,
        wire_type: WireType,
        single: WireType,
        size: usize,
    ) -> Result<&'a [u8], Malformed> {
        if wire_type != WireType::Bytes {
            expect(wire_type, single)?;
            return self.take(size);
        }
        let packed = self.bytes()?;
        if packed.len().is_multiple_of(size) { Ok(packed) } else { Err(Malformed::Truncated) }
    }

    /// The value of a field that must have four bytes.
    pub(crate) fn fixed32_field(&mut self, wire_type: WireType) -> Result<[u8; 4], Malformed> {
        expect(wire_type, WireType::Fixed32)?;
        self.chunk()
    }

    /// The value of a field that must have eight bytes.
    pub(crate) fn fixed64_field(&mut self, wire_type: WireType) -> Result<[u8; 8], Malformed> {
        expect(wire_type, WireType::Fixed64)?;
        self.fixed64()
    }

    pub(crate) fn fixed64(&mut self) -> Result<[u8; 8], Malformed> {
        self.chunk()
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (chunk, rest) = self.rest.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(*chunk)
    }
}

/// Whether bytes are UTF-8.
#[inline]
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    // Short texts are nearly always ASCII, which is seen faster.
    bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()
}

pub(crate) fn expect(found: WireType, expected: WireType) -> Result<(), Malformed> {
    if found == expected { Ok(()) } else { Err(Malformed::WireType) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding::{DecodeContext, decode_key, decode_varint, skip_field};

    use super::*;

    proptest! {
        #[test]
        fn varints_are_read_as_prost_reads_them(
            low in proptest::collection::vec(0x80u8.., 0..12),
            last in proptest::option::of(0u8..0x80),
            after in proptest::collection::vec(any::<u8>(), 0..3),
        ) {
            let bytes: Vec<_> = low.into_iter().chain(last).chain(after).collect();
            let (mut plain, mut reader) = (bytes.as_slice(), Reader::new(&bytes));
            match decode_varint(&mut plain) {
                Ok(value) => {
                    prop_assert_eq!(reader.varint(), Ok(value));
                    prop_assert_eq!(reader.rest(), plain);
                }
                Err(_) => prop_assert!(reader.varint().is_err()),
            }
        }

        #[test]
        fn fields_are_skipped_as_prost_skips_them(
            bytes in proptest::collection::vec(prop_oneof![0u8..32, any::<u8>()], 0..40),
        ) {
            let (mut plain, mut reader) = (bytes.as_slice(), Reader::new(&bytes));
            let expected = decode_key(&mut plain).and_then(|(number, wire_type)| {
                skip_field(wire_type, number, &mut plain, DecodeContext::default())
            });
            let found = reader.key().and_then(|(number, wire_type)| {
                reader.skip(number, wire_type, MAX_DEPTH)
            });
            prop_assert_eq!(found.is_ok(), expected.is_ok());
            if found.is_ok() {
                prop_assert_eq!(reader.rest(), plain);
            }
        }
    }
}
