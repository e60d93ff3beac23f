//! Decodes an encoded `tensorflow.TensorProto` by the rules of TensorFlow's own decoder:
//! a list that is shorter than the shape repeats its last value, a longer one is
//! truncated, and values in another type's field are ignored.

use outrigger_proto::raw::read::{Fields, Reader, Value};

use crate::{
    malformed::Malformed,
    tensorflow::{DType, Runtime, Tensor, TensorWriter},
};

/// TensorFlow's limit on the rank.
const MAX_RANK: usize = 254;
/// Largest tensor: the size limit of a message, which also bounds the repetition of a
/// single value.
const MAX_BYTES: usize = i32::MAX as usize;

/// The encoding of a type's list of values.
#[derive(Clone, Copy)]
enum Encoding {
    /// Numbers of four or eight bytes, with the same layout as in memory.
    Fixed(usize),
    /// Varints, truncated to the element's size.
    Varint,
    /// Varints that are zero or one.
    Bool,
    /// Bytes with the same layout as in memory.
    Raw,
}

/// A tensor's type and shape, and its `tensor_content`.
struct Header<'a> {
    dtype: DType,
    dims: Vec<i64>,
    content: &'a [u8],
}

/// Decodes a tensor. `None` if TensorFlow would refuse it too.
pub(crate) fn decode(runtime: Runtime, proto: &[u8]) -> Option<Tensor> {
    let header = header(proto).ok()?;
    if header.dtype == DType::STRING {
        return strings(runtime, proto, &header);
    }
    let size = header.dtype.size()?;
    let bytes = elements(&header.dims)?.checked_mul(size).filter(|&bytes| bytes <= MAX_BYTES)?;
    if bytes > 0 && !header.content.is_empty() {
        return (header.content.len() == bytes).then(|| {
            Tensor::plain(runtime, header.dtype, &header.dims, |to| to.put(header.content))
        })?;
    }
    let mut read = Ok(());
    let tensor = Tensor::plain(runtime, header.dtype, &header.dims, |to| {
        read = values(proto, header.dtype, size, to);
    });
    read.ok().and(tensor)
}

fn header(proto: &[u8]) -> Result<Header<'_>, Malformed> {
    let mut header = Header { dtype: DType(0), dims: Vec::new(), content: &[] };
    for field in Fields::of(proto) {
        match field? {
            (1, Value::Varint(number)) => header.dtype = DType(number as i32),
            (2, Value::Bytes(shape)) => dims(shape, &mut header.dims)?,
            (4, Value::Bytes(content)) => header.content = content,
            _ => {}
        }
    }
    let valid = header.dims.len() <= MAX_RANK && header.dims.iter().all(|&dim| dim >= 0);
    if valid { Ok(header) } else { Err(Malformed) }
}

fn dims(shape: &[u8], dims: &mut Vec<i64>) -> Result<(), Malformed> {
    for field in Fields::of(shape) {
        if let (2, Value::Bytes(dim)) = field? {
            let mut size = 0;
            for field in Fields::of(dim) {
                if let (1, Value::Varint(number)) = field? {
                    size = number as i64;
                }
            }
            dims.push(size);
        }
    }
    Ok(())
}

fn elements(dims: &[i64]) -> Option<usize> {
    dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(usize::try_from(dim).ok()?))
}

/// The number and encoding of the field that lists values of this type.
fn list(dtype: DType) -> Option<(u32, Encoding)> {
    Some(match dtype.0 {
        1 => (5, Encoding::Fixed(4)),
        2 => (6, Encoding::Fixed(8)),
        3..=6 | 11..=13 | 15..=17 => (7, Encoding::Varint),
        8 => (9, Encoding::Fixed(4)),
        9 => (10, Encoding::Varint),
        10 => (11, Encoding::Bool),
        18 => (12, Encoding::Fixed(8)),
        14 | 19 => (13, Encoding::Varint),
        22 => (16, Encoding::Varint),
        23 => (17, Encoding::Varint),
        24..=28 => (18, Encoding::Raw),
        _ => return None,
    })
}

/// Copies the listed values, then repeats the last one to the end.
fn values(
    proto: &[u8],
    dtype: DType,
    size: usize,
    to: &mut TensorWriter<'_>,
) -> Result<(), Malformed> {
    let (number, encoding) = list(dtype).ok_or(Malformed)?;
    let mut last = [0; 16];
    for field in Fields::of(proto) {
        let (found, value) = field?;
        if found == number {
            copy(value, encoding, &mut last[..size], to)?;
        }
    }
    to.fill(&last[..size]);
    Ok(())
}

/// Copies one occurrence of the list's field: a packed run or a single value.
fn copy(
    value: Value<'_>,
    encoding: Encoding,
    last: &mut [u8],
    to: &mut TensorWriter<'_>,
) -> Result<(), Malformed> {
    match (encoding, value) {
        (Encoding::Fixed(8), Value::Bytes(run)) if run.len() % 8 == 0 => copy_run(run, last, to),
        (Encoding::Fixed(4), Value::Bytes(run)) if run.len() % 4 == 0 => copy_run(run, last, to),
        (Encoding::Fixed(4), Value::Fixed32(one)) => copy_run(one, last, to),
        (Encoding::Fixed(8), Value::Fixed64(one)) => copy_run(one, last, to),
        (Encoding::Raw, Value::Bytes(run)) => copy_run(run, last, to),
        (Encoding::Varint | Encoding::Bool, Value::Varint(one)) => {
            copy_number(one, encoding, last, to);
        }
        (Encoding::Varint | Encoding::Bool, Value::Bytes(run)) => {
            let mut run = Reader::new(run);
            while !run.is_empty() {
                copy_number(run.varint()?, encoding, last, to);
            }
        }
        _ => return Err(Malformed),
    }
    Ok(())
}

fn copy_run(run: &[u8], last: &mut [u8], to: &mut TensorWriter<'_>) {
    to.put(run);
    // The unpacked parts of a complex number come one by one; only a whole element may be
    // repeated.
    if let Some(tail) = run.len().checked_sub(last.len()).map(|start| &run[start..]) {
        last.copy_from_slice(tail);
    }
}

fn copy_number(number: u64, encoding: Encoding, last: &mut [u8], to: &mut TensorWriter<'_>) {
    let number = if matches!(encoding, Encoding::Bool) { u64::from(number != 0) } else { number };
    last.copy_from_slice(&number.to_le_bytes()[..last.len()]);
    to.put(last);
}

fn strings(runtime: Runtime, proto: &[u8], header: &Header<'_>) -> Option<Tensor> {
    let count = elements(&header.dims)?;
    if count > MAX_BYTES / 24 {
        return None;
    }
    if count > 0 && !header.content.is_empty() {
        let parts = split_content(header.content, count)?;
        return Tensor::strings(runtime, &header.dims, parts.into_iter());
    }
    let values = Fields::of(proto).filter_map(|field| match field {
        Ok((8, Value::Bytes(value))) => Some(value),
        _ => None,
    });
    Tensor::strings(runtime, &header.dims, values)
}

/// Splits `tensor_content` of strings: all lengths, then all bytes, without a rest.
fn split_content(content: &[u8], count: usize) -> Option<Vec<&[u8]>> {
    // Each string takes at least one byte for its length.
    if count > content.len() {
        return None;
    }
    let mut content = Reader::new(content);
    let lengths: Result<Vec<_>, _> = (0..count).map(|_| content.varint()).collect();
    let mut parts = Vec::with_capacity(count);
    for length in lengths.ok()? {
        parts.push(content.take(usize::try_from(length).ok()?).ok()?);
    }
    content.is_empty().then_some(parts)
}
