//! Encodes a tensor as `tensorflow.TensorProto` directly into the outgoing frame.

use bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use crate::tensorflow::{DType, Tensor};

const DTYPE: u32 = 1;
const SHAPE: u32 = 2;
const CONTENT: u32 = 4;
const STRINGS: u32 = 8;

/// A tensor with the lengths that must precede its parts on the wire.
#[derive(Debug)]
pub(crate) struct Outgoing {
    tensor: Tensor,
    dims: Vec<i64>,
    form: Form,
    length: usize,
}

/// The encoding of the values.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// The memory as it is, in this field: `tensor_content` or a packed list of
    /// fixed-size numbers, which have the same encoding.
    Memory(u32),
    /// A packed list of varints in this field, with this total length in bytes.
    Varints(u32, usize),
    /// One occurrence of the field per string.
    Strings,
    /// `tensor_content` of this length: the lengths of the strings, then their bytes.
    StringContent(usize),
    /// No field, because there are no elements.
    Empty,
}

impl Outgoing {
    /// Prepares a tensor for encoding. `as_content` selects `tensor_content` instead of
    /// the type's list, which is TensorFlow Serving's default.
    pub(crate) fn new(tensor: Tensor, as_content: bool) -> Self {
        let dims = tensor.dims();
        let form = form(&tensor, as_content);
        let shape = shape_length(&dims);
        let length = 1
            + encoded_len_varint(tensor.dtype().0 as u64)
            + delimited(SHAPE, shape)
            + form.length(&tensor);
        Self { tensor, dims, form, length }
    }

    /// Length of the encoded message.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Writes the message.
    pub(crate) fn encode(&self, to: &mut impl BufMut) {
        encode_key(DTYPE, WireType::Varint, to);
        encode_varint(self.tensor.dtype().0 as u64, to);
        encode_header(SHAPE, shape_length(&self.dims), to);
        for &dim in &self.dims {
            encode_header(2, dim_length(dim), to);
            if dim != 0 {
                encode_key(1, WireType::Varint, to);
                encode_varint(dim as u64, to);
            }
        }
        self.encode_values(to);
    }

    fn encode_values(&self, to: &mut impl BufMut) {
        match self.form {
            Form::Empty => {}
            Form::Memory(field) => {
                encode_header(field, self.tensor.bytes().len(), to);
                to.put_slice(self.tensor.bytes());
            }
            Form::Varints(field, length) => {
                encode_header(field, length, to);
                numbers(&self.tensor, |number| encode_varint(number, to));
            }
            Form::Strings => {
                for string in self.tensor.iter_strings() {
                    encode_header(STRINGS, string.len(), to);
                    to.put_slice(string);
                }
            }
            Form::StringContent(length) => {
                encode_header(CONTENT, length, to);
                let strings = self.tensor.iter_strings();
                strings.for_each(|string| encode_varint(string.len() as u64, to));
                self.tensor.iter_strings().for_each(|string| to.put_slice(string));
            }
        }
    }
}

impl Form {
    fn length(self, tensor: &Tensor) -> usize {
        match self {
            Self::Empty => 0,
            Self::Memory(field) => delimited(field, tensor.bytes().len()),
            Self::Varints(field, length) => delimited(field, length),
            Self::Strings => {
                tensor.iter_strings().map(|string| delimited(STRINGS, string.len())).sum()
            }
            Self::StringContent(length) => delimited(CONTENT, length),
        }
    }
}

fn form(tensor: &Tensor, as_content: bool) -> Form {
    if tensor.dtype() == DType::STRING {
        return string_form(tensor, as_content);
    }
    if tensor.bytes().is_empty() {
        return Form::Empty;
    }
    if as_content {
        return Form::Memory(CONTENT);
    }
    match tensor.dtype().0 {
        1 => Form::Memory(5),
        2 => Form::Memory(6),
        8 => Form::Memory(9),
        10 => Form::Memory(11),
        18 => Form::Memory(12),
        24..=28 => Form::Memory(18),
        9 => varints(tensor, 10),
        14 | 19 => varints(tensor, 13),
        22 => varints(tensor, 16),
        23 => varints(tensor, 17),
        _ => varints(tensor, 7),
    }
}

fn string_form(tensor: &Tensor, as_content: bool) -> Form {
    if tensor.iter_strings().len() == 0 {
        Form::Empty
    } else if as_content {
        let part = |string: &[u8]| encoded_len_varint(string.len() as u64) + string.len();
        Form::StringContent(tensor.iter_strings().map(part).sum())
    } else {
        Form::Strings
    }
}

fn varints(tensor: &Tensor, field: u32) -> Form {
    let mut length = 0;
    numbers(tensor, |number| length += encoded_len_varint(number));
    Form::Varints(field, length)
}

/// Calls `each` with every element as the value of its varint; negative numbers are
/// sign-extended to 64 bits.
fn numbers(tensor: &Tensor, mut each: impl FnMut(u64)) {
    /// The elements of `bytes` as arrays.
    fn arrays<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
        bytes.as_chunks::<N>().0.iter().copied()
    }
    let bytes = tensor.bytes();
    match tensor.dtype().0 {
        6 | 11 => bytes.iter().for_each(|&byte| each(byte as i8 as u64)),
        4 | 12 => bytes.iter().for_each(|&byte| each(byte.into())),
        5 | 15 => arrays(bytes).for_each(|two| each(i16::from_le_bytes(two) as u64)),
        14 | 16 | 17 | 19 => arrays(bytes).for_each(|two| each(u16::from_le_bytes(two).into())),
        3 | 13 => arrays(bytes).for_each(|four| each(i32::from_le_bytes(four) as u64)),
        22 => arrays(bytes).for_each(|four| each(u32::from_le_bytes(four).into())),
        _ => arrays(bytes).for_each(|eight| each(u64::from_le_bytes(eight))),
    }
}

fn dim_length(dim: i64) -> usize {
    if dim == 0 { 0 } else { 1 + encoded_len_varint(dim as u64) }
}

fn shape_length(dims: &[i64]) -> usize {
    dims.iter().map(|&dim| delimited(2, dim_length(dim))).sum()
}

/// Length of a length-delimited field, including its key.
pub(crate) fn delimited(field: u32, length: usize) -> usize {
    key_len(field) + encoded_len_varint(length as u64) + length
}

/// Writes the key and length of a length-delimited field.
pub(crate) fn encode_header(field: u32, length: usize, to: &mut impl BufMut) {
    encode_key(field, WireType::LengthDelimited, to);
    encode_varint(length as u64, to);
}
