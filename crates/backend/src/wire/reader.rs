//! Reads protobuf fields in place.

use bytes::Buf as _;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::DecodeError;

/// The fields of one encoded message, in the order of the wire.
pub(crate) struct Fields<'a>(&'a [u8]);

/// A field's value as the wire has it.
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn read(&mut self) -> Result<(u32, Value<'a>), DecodeError> {
        let (tag, wire) = decode_key(&mut self.0).map_err(|_| DecodeError::Malformed)?;
        let value = match wire {
            WireType::Varint => Value::Varint(varint(&mut self.0)?),
            WireType::SixtyFourBit => {
                Value::Fixed64(self.0.try_get_u64_le().map_err(|_| DecodeError::Malformed)?)
            }
            WireType::ThirtyTwoBit => {
                Value::Fixed32(self.0.try_get_u32_le().map_err(|_| DecodeError::Malformed)?)
            }
            WireType::LengthDelimited => {
                let length = varint(&mut self.0)?;
                Value::Bytes(take(&mut self.0, length)?)
            }
            // Groups went out of use before TensorFlow was written.
            WireType::StartGroup | WireType::EndGroup => return Err(DecodeError::Malformed),
        };
        Ok((tag, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), DecodeError>;

    /// After an error there is nothing more to read.
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    decode_varint(bytes).map_err(|_| DecodeError::Malformed)
}

/// The next `length` bytes.
pub(super) fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8], DecodeError> {
    let length = usize::try_from(length).map_err(|_| DecodeError::Malformed)?;
    bytes.split_off(..length).ok_or(DecodeError::Malformed)
}
