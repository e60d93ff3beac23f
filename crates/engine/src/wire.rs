//! Reads encoded protobuf messages in place.
//!
//! Tensors are large and their values are copied straight into TensorFlow's memory, so
//! they are not decoded into message types first.

use prost::encoding::decode_varint;

/// The bytes are not an encoded protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an encoded protobuf message")]
pub(crate) struct Malformed;

/// A field's value, decoded only as far as its wire type determines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// An integer or bool.
    Varint(u64),
    /// Eight bytes, little-endian.
    Fixed64(&'a [u8]),
    /// A message, string, bytes or packed list.
    Bytes(&'a [u8]),
    /// Four bytes, little-endian.
    Fixed32(&'a [u8]),
}

/// The fields of an encoded message in order; ends after the first error.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

/// Reads the fields of `message`.
pub(crate) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

/// Reads one varint from the front of `bytes`.
pub(crate) fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    decode_varint(bytes).map_err(|_| Malformed)
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let key = varint(&mut self.rest)?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.rest)?),
            1 => Value::Fixed64(self.take(8)?),
            2 => {
                let length = varint(&mut self.rest)?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(self.take(4)?),
            _ => return Err(Malformed),
        };
        if number == 0 { Err(Malformed) } else { Ok((number, value)) }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_wire_type() {
        let message = [0x08, 0x96, 0x01, 0x12, 2, 7, 8, 0x1d, 1, 2, 3, 4];
        let read: Result<Vec<_>, _> = fields(&message).collect();
        let expected = vec![
            (1, Value::Varint(150)),
            (2, Value::Bytes(&[7, 8])),
            (3, Value::Fixed32(&[1, 2, 3, 4])),
        ];
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error_and_the_last_item() {
        let read: Vec<_> = fields(&[0x12, 9, 7]).collect();
        assert_eq!(read, [Err(Malformed)]);
        assert_eq!(fields(&[0x0b]).next(), Some(Err(Malformed)));
    }
}
