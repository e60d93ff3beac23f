//! Reads protobuf's wire format in place. It accepts the same as prost:
//! <https://protobuf.dev/programming-guides/encoding/>.

/// How deeply messages and groups may nest; prost's limit.
pub const MAX_DEPTH: u32 = 100;

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes end within a field.
    #[error("it ends in the middle of a field")]
    Truncated,
    /// A varint has more than 64 bits.
    #[error("a varint is longer than 64 bits")]
    Varint,
    /// A field's number is 0 or too large, or its wire type is none.
    #[error("a field key is invalid")]
    Key,
    /// A field has another wire type than its type has.
    #[error("a field has another wire type than its type's")]
    WireType,
    /// A group ends that has not begun.
    #[error("a group ends that was not begun")]
    Group,
    /// A text is not UTF-8.
    #[error("a text is not valid UTF-8")]
    Text,
    /// Messages or groups nest too deeply.
    #[error("messages are nested too deeply")]
    Depth,
    /// More entries than the reader of this message takes.
    #[error(
        "it has more entries than allowed: features that the model does not name, or names of outputs"
    )]
    Entries,
}

/// How a field's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireType {
    /// An integer, a bool or an enum.
    Varint,
    /// Eight bytes.
    Fixed64,
    /// A length, and as many bytes: a message, a text, bytes or a packed list.
    Bytes,
    /// Fields follow until [`WireType::EndGroup`].
    StartGroup,
    /// The end of a group.
    EndGroup,
    /// Four bytes.
    Fixed32,
}

/// The part of a message that has not been read yet.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `message` from its start.
    #[inline]
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Whether all has been read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes that have not been read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads over `byte`, if it is the next one.
    #[inline]
    pub fn accept(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// A varint of at most 64 bits.
    ///
    /// # Errors
    /// [`Malformed`], as from all of these.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
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
    #[inline]
    pub fn key(&mut self) -> Result<(u32, WireType), Malformed> {
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

    /// A length and as many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| Malformed::Truncated)?)
    }

    /// A length and as many bytes, which must be text.
    // Called for every text: left to the compiler, it becomes a call of its own.
    #[inline(always)]
    pub fn text_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let bytes = self.bytes()?;
        if is_text(bytes) { Ok(bytes) } else { Err(Malformed::Text) }
    }

    /// The next `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads over the value of an unknown field, at most `depth` messages and groups deep.
    #[inline]
    pub fn skip(&mut self, number: u32, wire_type: WireType, depth: u32) -> Result<(), Malformed> {
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
    #[inline]
    pub fn bytes_field(&mut self, wire_type: WireType) -> Result<&'a [u8], Malformed> {
        expect(wire_type, WireType::Bytes)?;
        self.bytes()
    }

    /// The text of a field that must be length-delimited.
    #[inline]
    pub fn text_field(&mut self, wire_type: WireType) -> Result<&'a str, Malformed> {
        expect(wire_type, WireType::Bytes)?;
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Text)
    }

    /// The value of a field that must be a varint.
    #[inline]
    pub fn varint_field(&mut self, wire_type: WireType) -> Result<u64, Malformed> {
        expect(wire_type, WireType::Varint)?;
        self.varint()
    }

    /// The values of a repeated field: one, or packed many.
    #[inline]
    pub fn varints_field(
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
    #[inline]
    pub fn fixed_field(
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
    #[inline]
    pub fn fixed32_field(&mut self, wire_type: WireType) -> Result<[u8; 4], Malformed> {
        expect(wire_type, WireType::Fixed32)?;
        self.chunk().copied()
    }

    /// The value of a field that must have eight bytes.
    #[inline]
    pub fn fixed64_field(&mut self, wire_type: WireType) -> Result<[u8; 8], Malformed> {
        expect(wire_type, WireType::Fixed64)?;
        self.fixed64()
    }

    /// The next eight bytes.
    #[inline]
    pub fn fixed64(&mut self) -> Result<[u8; 8], Malformed> {
        self.chunk().copied()
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (chunk, rest) = self.rest.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(chunk)
    }
}

/// A field's value, undecoded as far as its wire type allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer, a bool or an enum.
    Varint(u64),
    /// Eight bytes, little-endian.
    Fixed64(&'a [u8; 8]),
    /// A message, a text, bytes or a packed list.
    Bytes(&'a [u8]),
    /// Four bytes, little-endian.
    Fixed32(&'a [u8; 4]),
}

/// The fields of a message in the order of the wire, groups left out; ends after the first
/// error.
#[derive(Debug, Clone)]
pub struct Fields<'a>(Reader<'a>);

impl<'a> Fields<'a> {
    /// The fields of `message`.
    #[inline]
    pub fn of(message: &'a [u8]) -> Self {
        Self(Reader::new(message))
    }

    #[inline]
    fn read(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        while !self.0.is_empty() {
            let (number, wire_type) = self.0.key()?;
            let value = match wire_type {
                WireType::Varint => Value::Varint(self.0.varint()?),
                WireType::Fixed64 => Value::Fixed64(self.0.chunk()?),
                WireType::Bytes => Value::Bytes(self.0.bytes()?),
                WireType::Fixed32 => Value::Fixed32(self.0.chunk()?),
                WireType::StartGroup | WireType::EndGroup => {
                    self.0.skip(number, wire_type, MAX_DEPTH)?;
                    continue;
                }
            };
            return Ok(Some((number, value)));
        }
        Ok(None)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = self.read();
        if field.is_err() {
            self.0 = Reader::new(&[]);
        }
        field.transpose()
    }
}

/// Whether bytes are UTF-8.
#[inline]
pub fn is_text(bytes: &[u8]) -> bool {
    // Short texts are nearly always ASCII, which is seen faster.
    bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()
}

/// Checks the wire type of a field.
///
/// # Errors
/// [`Malformed::WireType`].
#[inline]
pub fn expect(found: WireType, expected: WireType) -> Result<(), Malformed> {
    if found == expected { Ok(()) } else { Err(Malformed::WireType) }
}

#[cfg(test)]
mod tests;
