//! Fields of a message, measured and written.

use bytes::BufMut;
use prost::encoding::{WireType, encode_varint, encoded_len_varint, key_len};

/// Bytes of a length-delimited field that holds `length` bytes.
pub(super) fn bytes_len(tag: u32, length: usize) -> usize {
    key_len(tag) + encoded_len_varint(length as u64) + length
}

/// As [`bytes_len`], of a field that is left out if it is empty.
pub(super) fn filled_len(tag: u32, length: usize) -> usize {
    if length == 0 { 0 } else { bytes_len(tag, length) }
}

/// Writes what stands before the bytes of a length-delimited field.
#[inline]
pub(super) fn put_header(tag: u32, length: usize, out: &mut impl BufMut) {
    put_varint(u64::from(tag) << 3 | WireType::LengthDelimited as u64, out);
    put_varint(length as u64, out);
}

/// Writes a number, which is mostly a small one.
#[inline]
pub(super) fn put_varint(value: u64, out: &mut impl BufMut) {
    match u8::try_from(value) {
        Ok(byte) if byte < 0x80 => out.put_u8(byte),
        _ => encode_varint(value, out),
    }
}

/// As [`put_header`], of a field that is left out if it is empty.
pub(super) fn put_filled_header(tag: u32, length: usize, out: &mut impl BufMut) {
    if length > 0 {
        put_header(tag, length, out);
    }
}

/// Writes a length-delimited field.
#[inline]
pub(super) fn put_bytes(tag: u32, bytes: &[u8], out: &mut impl BufMut) {
    put_header(tag, bytes.len(), out);
    out.put_slice(bytes);
}

/// Writes a text field, unless it is empty.
pub(super) fn put_filled(tag: u32, text: &str, out: &mut impl BufMut) {
    put_filled_header(tag, text.len(), out);
    out.put_slice(text.as_bytes());
}
