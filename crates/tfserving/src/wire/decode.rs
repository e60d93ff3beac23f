//! Decodes tensors from an encoded `tensorflow.serving.PredictResponse`.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use outrigger_core::{Content, DType, Reason, Tensor};
use outrigger_proto::raw::read::{self, Fields, Reader, Value};
use outrigger_run::RunError;

use super::dtype::{Element, Encoding, element};

/// The reason why an answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not a protobuf message, or not one of the expected type.
    #[error("the message is malformed")]
    Malformed,
    /// An element type without a counterpart in [`DType`].
    #[error("element type {0} is not supported")]
    DType(i32),
    /// A negative size, or more elements than memory could hold.
    #[error("the shape {0:?} is not valid")]
    Shape(Vec<i64>),
    /// The length of the content does not match its shape and type.
    #[error("a tensor has {actual} bytes of content, its shape and type make it {expected}")]
    Content {
        /// The actual number of bytes.
        actual: usize,
        /// The expected number of bytes.
        expected: usize,
    },
    /// The tensor, filled up to its shape, would be larger than the limit of a message.
    #[error("a tensor of {size} bytes is over the limit of {limit}")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// A requested output is missing.
    #[error("the output {0:?} is missing")]
    Missing(String),
}

impl DecodeError {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::DType(_) | Self::Missing(_) => Reason::ScoresInvalid,
            _ => Reason::EngineFailed,
        }
    }
}

impl From<DecodeError> for RunError {
    fn from(error: DecodeError) -> Self {
        Self::Answer { reason: error.reason(), source: error.into() }
    }
}

impl From<read::Malformed> for DecodeError {
    fn from(_: read::Malformed) -> Self {
        Self::Malformed
    }
}

/// Reads the outputs named `wanted`, in that order; if `wanted` is empty, all outputs in
/// the order of the message. No tensor may take more than `limit` bytes.
///
/// # Errors
/// [`DecodeError`]; no content of `message` causes a panic.
pub fn decode_response(
    message: Bytes,
    wanted: &[Arc<str>],
    limit: usize,
) -> Result<Vec<Tensor>, DecodeError> {
    if wanted.is_empty() { all(&message, limit) } else { these(&message, wanted, limit) }
}

fn all(message: &Bytes, limit: usize) -> Result<Vec<Tensor>, DecodeError> {
    let outputs = outputs(message).map(|output| {
        let (name, value) = output?;
        let name = std::str::from_utf8(name).map_err(|_| DecodeError::Malformed)?;
        tensor(name.into(), message, value, limit)
    });
    outputs.collect()
}

/// Reads the wanted outputs. If a name occurs twice, the last one counts.
fn these(message: &Bytes, wanted: &[Arc<str>], limit: usize) -> Result<Vec<Tensor>, DecodeError> {
    let mut found: Vec<Option<Tensor>> = wanted.iter().map(|_| None).collect();
    for output in outputs(message) {
        let (name, value) = output?;
        if let Some(index) = wanted.iter().position(|wanted| wanted.as_bytes() == name) {
            found[index] = Some(tensor(Arc::clone(&wanted[index]), message, value, limit)?);
        }
    }
    let named = found.into_iter().zip(wanted);
    named.map(|(found, name)| found.ok_or_else(|| DecodeError::Missing(name.to_string()))).collect()
}

/// The names and values of the map `outputs`.
fn outputs(message: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), DecodeError>> {
    Fields::of(message).filter_map(|field| match field {
        Ok((1, Value::Bytes(entry))) => Some(map_entry(entry)),
        Ok(_) => None,
        Err(error) => Some(Err(error.into())),
    })
}

/// Splits a map's entry into key and value. A missing value counts as an empty message.
fn map_entry(entry: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let (mut key, mut value) = (&[][..], &[][..]);
    for field in Fields::of(entry) {
        match field? {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Reads one `TensorProto` by TensorFlow's rules: content takes precedence over values,
/// only the field of the tensor's type counts, missing values are filled with the last one
/// (without any: with zeros or empty strings), and surplus values are dropped.
///
/// It refuses the values of element types that hold neither numbers nor strings of a
/// [`DType`]: `scomplex_val` and `dcomplex_val` (complex numbers), `resource_handle_val` and
/// `variant_val` (objects within the engine), `float8_val`, and quantised and four-bit
/// integers, which are sent in `int_val`. None of them is a score.
///
/// # Errors
/// [`DecodeError`]; a tensor that would take more than `limit` bytes is one.
pub fn decode_tensor(name: &str, message: Bytes, limit: usize) -> Result<Tensor, DecodeError> {
    tensor(name.into(), &message, &message, limit)
}

/// Reads the tensor in `value`, a part of `whole`, and shares its bytes.
fn tensor(
    name: Arc<str>,
    whole: &Bytes,
    value: &[u8],
    limit: usize,
) -> Result<Tensor, DecodeError> {
    let header = Header::read(value)?;
    let element = element(header.dtype)?;
    let count = header.count()?;
    let size = count.saturating_mul(element.dtype.size().unwrap_or(size_of::<Bytes>()));
    if size > limit {
        return Err(DecodeError::TooLarge { size, limit });
    }
    let share = |part: &[u8]| whole.slice_ref(part);
    let content = match (element.dtype, header.content) {
        (DType::String, content) => {
            let strings = match content {
                Some(content) => strings_of_content(content, count)?,
                None => strings_of_values(value, count)?,
            };
            Content::Strings(strings.into_iter().map(share).collect())
        }
        (_, Some(content)) => Content::Bytes(of_content(element, content, count, share)?),
        (_, None) => Content::Bytes(of_values(element, value, count, share)?),
    };
    Ok(Tensor { name, dtype: element.dtype, shape: header.shape, content })
}

/// The fields of a `TensorProto` other than its values.
struct Header<'a> {
    dtype: i32,
    shape: Vec<i64>,
    content: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut header = Self { dtype: 0, shape: Vec::new(), content: None };
        for field in Fields::of(message) {
            match field? {
                (1, Value::Varint(dtype)) => header.dtype = dtype as i32,
                (2, Value::Bytes(shape)) => header.read_shape(shape)?,
                // An empty field counts as a missing one.
                (4, Value::Bytes(content)) if !content.is_empty() => header.content = Some(content),
                _ => {}
            }
        }
        Ok(header)
    }

    fn read_shape(&mut self, shape: &[u8]) -> Result<(), DecodeError> {
        for field in Fields::of(shape) {
            if let (2, Value::Bytes(dim)) = field? {
                let mut size = 0;
                for field in Fields::of(dim) {
                    if let (1, Value::Varint(value)) = field? {
                        size = value as i64;
                    }
                }
                self.shape.push(size);
            }
        }
        Ok(())
    }

    /// The number of elements.
    fn count(&self) -> Result<usize, DecodeError> {
        let sizes = self.shape.iter().map(|&size| usize::try_from(size).ok());
        sizes
            .reduce(|count, size| count?.checked_mul(size?))
            .unwrap_or(Some(1))
            .ok_or_else(|| DecodeError::Shape(self.shape.clone()))
    }
}

fn of_content(
    element: Element,
    content: &[u8],
    count: usize,
    share: impl Fn(&[u8]) -> Bytes,
) -> Result<Bytes, DecodeError> {
    let expected = count.saturating_mul(element.dtype.size().unwrap_or_default());
    match content.len() == expected {
        true => Ok(share(content)),
        false => Err(DecodeError::Content { actual: content.len(), expected }),
    }
}

fn of_values(
    element: Element,
    message: &[u8],
    count: usize,
    share: impl Fn(&[u8]) -> Bytes,
) -> Result<Bytes, DecodeError> {
    let mut out = Elements::new(element, count);
    for field in Fields::of(message) {
        let (tag, value) = field?;
        if tag != element.field {
            continue;
        }
        match value {
            // A packed list of floats has the layout of content, so it is not copied.
            Value::Bytes(packed) if element.encoding != Encoding::Varint => {
                if out.is_empty() && packed.len() == out.wanted {
                    return Ok(share(packed));
                }
                out.push_packed(packed)?;
            }
            Value::Bytes(packed) => {
                out.make_room(packed.len());
                let mut packed = Reader::new(packed);
                while !packed.is_empty() {
                    out.push(packed.varint()?);
                }
            }
            Value::Varint(bits) => out.push(bits),
            Value::Fixed64(bits) => out.push(u64::from_le_bytes(*bits)),
            Value::Fixed32(bits) => out.push(u32::from_le_bytes(*bits).into()),
        }
    }
    Ok(out.finish())
}

/// Collects converted elements, up to the number given by the shape.
struct Elements {
    element: Element,
    width: usize,
    wanted: usize,
    bytes: BytesMut,
}

impl Elements {
    fn new(element: Element, count: usize) -> Self {
        let width = element.dtype.size().expect("strings are read elsewhere");
        Self { element, width, wanted: count * width, bytes: BytesMut::new() }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reserves memory for at most `count` more elements, and never for more than the shape holds:
    /// a shape without elements must not allocate memory.
    fn make_room(&mut self, count: usize) {
        let wanted = self.wanted - self.bytes.len();
        self.bytes.reserve(wanted.min(count.saturating_mul(self.width)));
    }

    fn push(&mut self, bits: u64) {
        if self.bytes.len() < self.wanted {
            let value = self.element.convert(bits).to_le_bytes();
            self.bytes.put_slice(&value[..self.width]);
        }
    }

    fn push_packed(&mut self, packed: &[u8]) -> Result<(), DecodeError> {
        let width = if self.element.encoding == Encoding::Fixed32 { 4 } else { 8 };
        if !packed.len().is_multiple_of(width) {
            return Err(DecodeError::Malformed);
        }
        self.make_room(packed.len() / width);
        for chunk in packed.chunks_exact(width) {
            let mut bits = [0; 8];
            bits[..width].copy_from_slice(chunk);
            self.push(u64::from_le_bytes(bits));
        }
        Ok(())
    }

    /// Fills the rest with the last element, or with zeros.
    fn finish(mut self) -> Bytes {
        let missing = (self.wanted - self.bytes.len()) / self.width;
        let mut last = [0; 8];
        if let Some(start) = self.bytes.len().checked_sub(self.width) {
            last[..self.width].copy_from_slice(&self.bytes[start..]);
        }
        self.bytes.reserve(missing * self.width);
        for _ in 0..missing {
            self.bytes.put_slice(&last[..self.width]);
        }
        self.bytes.freeze()
    }
}

fn strings_of_values(message: &[u8], count: usize) -> Result<Vec<&[u8]>, DecodeError> {
    let mut strings = Vec::new();
    for field in Fields::of(message) {
        if let (8, Value::Bytes(text)) = field?
            && strings.len() < count
        {
            strings.push(text);
        }
    }
    let last = strings.last().copied().unwrap_or_default();
    strings.resize(count, last);
    Ok(strings)
}

/// Splits string content: the lengths of all strings as varints, then their bytes.
fn strings_of_content(content: &[u8], count: usize) -> Result<Vec<&[u8]>, DecodeError> {
    let mut content = Reader::new(content);
    let lengths: Vec<u64> = (0..count).map(|_| content.varint()).collect::<Result<_, _>>()?;
    let length = |length| usize::try_from(length).map_err(|_| DecodeError::Malformed);
    let strings = lengths.into_iter().map(|bytes| Ok(content.take(length(bytes)?)?));
    let strings = strings.collect::<Result<Vec<_>, DecodeError>>()?;
    if content.is_empty() { Ok(strings) } else { Err(DecodeError::Malformed) }
}
