//! Encodes a tensor as `tensorflow.TensorProto` directly into the outgoing frame.

use bytes::BufMut;
use outrigger_proto::raw::write::{
    bytes_len, int_len, put_bytes, put_header, put_int, put_varint, varint_len,
};

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
        let length = int_len(DTYPE, tensor.dtype().0 as u64)
            + bytes_len(SHAPE, shape)
            + form.length(&tensor);
        Self { tensor, dims, form, length }
    }

    /// Length of the encoded message.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Writes the message.
    pub(crate) fn encode(&self, to: &mut impl BufMut) {
        put_int(DTYPE, self.tensor.dtype().0 as u64, to);
        put_header(SHAPE, shape_length(&self.dims), to);
        for &dim in &self.dims {
            put_header(2, dim_length(dim), to);
            if dim != 0 {
                put_int(1, dim as u64, to);
            }
        }
        self.encode_values(to);
    }

    fn encode_values(&self, to: &mut impl BufMut) {
        match self.form {
            Form::Empty => {}
            Form::Memory(field) => put_bytes(field, self.tensor.bytes(), to),
            Form::Varints(field, length) => {
                put_header(field, length, to);
                numbers(&self.tensor, |number| put_varint(number, to));
            }
            Form::Strings => {
                for string in self.tensor.iter_strings() {
                    put_bytes(STRINGS, string, to);
                }
            }
            Form::StringContent(length) => {
                put_header(CONTENT, length, to);
                let strings = self.tensor.iter_strings();
                strings.for_each(|string| put_varint(string.len() as u64, to));
                self.tensor.iter_strings().for_each(|string| to.put_slice(string));
            }
        }
    }
}

impl Form {
    fn length(self, tensor: &Tensor) -> usize {
        match self {
            Self::Empty => 0,
            Self::Memory(field) => bytes_len(field, tensor.bytes().len()),
            Self::Varints(field, length) => bytes_len(field, length),
            Self::Strings => {
                tensor.iter_strings().map(|string| bytes_len(STRINGS, string.len())).sum()
            }
            Self::StringContent(length) => bytes_len(CONTENT, length),
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
        let part = |string: &[u8]| varint_len(string.len() as u64) + string.len();
        Form::StringContent(tensor.iter_strings().map(part).sum())
    } else {
        Form::Strings
    }
}

fn varints(tensor: &Tensor, field: u32) -> Form {
    let mut length = 0;
    numbers(tensor, |number| length += varint_len(number));
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
    if dim == 0 { 0 } else { int_len(1, dim as u64) }
}

fn shape_length(dims: &[i64]) -> usize {
    dims.iter().map(|&dim| bytes_len(2, dim_length(dim))).sum()
}
