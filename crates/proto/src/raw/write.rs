//! Writes protobuf fields in place, and says how long they will be.

use bytes::BufMut;
use prost::{
    Message,
    encoding::{WireType, encode_varint, encoded_len_varint, key_len},
};

/// Bytes of a varint.
#[inline]
pub fn varint_len(value: u64) -> usize {
    encoded_len_varint(value)
}

/// Bytes of an integer's field.
#[inline]
pub fn int_len(tag: u32, value: u64) -> usize {
    key_len(tag) + varint_len(value)
}

/// Bytes of a length-delimited field that holds `length` bytes.
#[inline]
pub fn bytes_len(tag: u32, length: usize) -> usize {
    key_len(tag) + varint_len(length as u64) + length
}

/// As [`bytes_len`], of a field that is left out if it is empty.
#[inline]
pub fn filled_len(tag: u32, length: usize) -> usize {
    if length == 0 { 0 } else { bytes_len(tag, length) }
}

/// Writes a varint. Most are small, which takes a comparison and a store.
#[inline]
pub fn put_varint(value: u64, out: &mut impl BufMut) {
    match u8::try_from(value) {
        Ok(byte) if byte < 0x80 => out.put_u8(byte),
        _ => encode_varint(value, out),
    }
}

/// Writes an integer's field.
#[inline]
pub fn put_int(tag: u32, value: u64, out: &mut impl BufMut) {
    put_varint(u64::from(tag) << 3 | WireType::Varint as u64, out);
    put_varint(value, out);
}

/// Writes the key of a length-delimited field: its header without the length.
#[inline]
pub fn put_key(tag: u32, out: &mut impl BufMut) {
    put_varint(u64::from(tag) << 3 | WireType::LengthDelimited as u64, out);
}

/// Writes the key and the length of a length-delimited field.
#[inline]
pub fn put_header(tag: u32, length: usize, out: &mut impl BufMut) {
    put_key(tag, out);
    put_varint(length as u64, out);
}

/// As [`put_header`], of a field that is left out if it is empty.
#[inline]
pub fn put_filled_header(tag: u32, length: usize, out: &mut impl BufMut) {
    if length > 0 {
        put_header(tag, length, out);
    }
}

/// Writes a length-delimited field.
#[inline]
pub fn put_bytes(tag: u32, bytes: &[u8], out: &mut impl BufMut) {
    put_header(tag, bytes.len(), out);
    out.put_slice(bytes);
}

/// Writes a text field, unless it is empty.
#[inline]
pub fn put_filled(tag: u32, text: &str, out: &mut impl BufMut) {
    put_filled_header(tag, text.len(), out);
    out.put_slice(text.as_bytes());
}

/// Writes an entry of a map from texts to messages.
pub fn put_entry(tag: u32, key: &str, value: &impl Message, out: &mut impl BufMut) {
    let length = value.encoded_len();
    put_header(tag, bytes_len(1, key.len()) + bytes_len(2, length), out);
    put_bytes(1, key.as_bytes(), out);
    put_header(2, length, out);
    value.encode_raw(out);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding;

    use super::*;

    proptest! {
        #[test]
        fn fields_are_written_as_prost_writes_them(
            tag in prop_oneof![1u32..20, 1u32..1 << 29],
            value in prop_oneof![0u64..300, any::<u64>()],
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            put_int(tag, value, &mut ours);
            prop_assert_eq!(ours.len(), int_len(tag, value));
            put_bytes(tag, &bytes, &mut ours);
            prop_assert_eq!(ours.len(), int_len(tag, value) + bytes_len(tag, bytes.len()));
            encoding::uint64::encode(tag, &value, &mut theirs);
            encoding::bytes::encode(tag, &bytes, &mut theirs);
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn an_empty_field_is_left_out() {
        let mut out = Vec::new();
        put_filled(1, "", &mut out);
        put_filled_header(1, 0, &mut out);
        assert_eq!((out.len(), filled_len(1, 0)), (0, 0));
        put_filled(1, "a", &mut out);
        assert_eq!((out, filled_len(1, 1)), (vec![0x0a, 1, b'a'], 3));
    }
}
