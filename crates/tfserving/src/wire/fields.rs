//! Fields of protobuf messages.

use bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

pub(super) fn int_len(tag: u32, value: u64) -> usize {
    key_len(tag) + encoded_len_varint(value)
}

pub(super) fn field_len(tag: u32, length: usize) -> usize {
    key_len(tag) + encoded_len_varint(length as u64) + length
}

pub(super) fn put_int(tag: u32, value: u64, out: &mut impl BufMut) {
    encode_key(tag, WireType::Varint, out);
    encode_varint(value, out);
}

pub(super) fn put_header(tag: u32, length: usize, out: &mut impl BufMut) {
    put_tag(tag, out);
    put_length(length, out);
}

/// The part of a header that does not depend on the length.
pub(super) fn put_tag(tag: u32, out: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, out);
}

/// What a header has after its tag.
pub(super) fn put_length(length: usize, out: &mut impl BufMut) {
    encode_varint(length as u64, out);
}

pub(super) fn put_bytes(tag: u32, bytes: &[u8], out: &mut impl BufMut) {
    put_header(tag, bytes.len(), out);
    out.put_slice(bytes);
}
