//! A tensor's elements while they are appended.

use bytes::Bytes;
use outrigger_core::{Content, DType};

/// One encoded element.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Element {
    Float32(f32),
    Float64(f64),
    Int32(i32),
    Int64(i64),
    Bool(bool),
    Text(Bytes),
}

/// Elements of one type, in the order they were appended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Buffer {
    /// Little-endian elements of `size` bytes each.
    Fixed { bytes: Vec<u8>, size: usize },
    /// Strings.
    Strings(Vec<Bytes>),
}

impl Buffer {
    /// An empty buffer with room for `elements`.
    pub(crate) fn new(dtype: DType, elements: usize) -> Self {
        match dtype.size() {
            Some(size) => Self::Fixed { bytes: Vec::with_capacity(elements * size), size },
            None => Self::Strings(Vec::with_capacity(elements)),
        }
    }

    /// Appends an element, which must be of the buffer's type.
    pub(crate) fn push(&mut self, element: Element) {
        match (self, element) {
            (Self::Fixed { bytes, .. }, Element::Float32(value)) => {
                bytes.extend(value.to_le_bytes())
            }
            (Self::Fixed { bytes, .. }, Element::Float64(value)) => {
                bytes.extend(value.to_le_bytes())
            }
            (Self::Fixed { bytes, .. }, Element::Int32(value)) => bytes.extend(value.to_le_bytes()),
            (Self::Fixed { bytes, .. }, Element::Int64(value)) => bytes.extend(value.to_le_bytes()),
            (Self::Fixed { bytes, .. }, Element::Bool(value)) => bytes.push(value.into()),
            (Self::Strings(texts), Element::Text(text)) => texts.push(text),
            (buffer, element) => unreachable!("{element:?} in {buffer:?}"),
        }
    }

    /// Appends an integer, which must fit the buffer's type (int32 or int64).
    pub(crate) fn push_integer(&mut self, value: i64) {
        match self {
            Self::Fixed { size: 4, .. } => {
                self.push(Element::Int32(i32::try_from(value).expect("counts are limited")));
            }
            _ => self.push(Element::Int64(value)),
        }
    }

    /// Drops all but the first `elements`.
    pub(crate) fn truncate(&mut self, elements: usize) {
        match self {
            Self::Fixed { bytes, size } => bytes.truncate(elements * *size),
            Self::Strings(texts) => texts.truncate(elements),
        }
    }

    /// Splits the buffer into runs of the given lengths and fills each up to
    /// `padded` elements with zeros, false or empty strings.
    pub(crate) fn pad(self, runs: &[usize], padded: usize) -> Self {
        match self {
            Self::Fixed { bytes, size } => {
                let runs = runs.iter().map(|run| run * size);
                Self::Fixed { bytes: pad(bytes, runs, padded * size), size }
            }
            Self::Strings(texts) => Self::Strings(pad(texts, runs.iter().copied(), padded)),
        }
    }

    /// The elements as a tensor's content.
    pub(crate) fn into_content(self) -> Content {
        match self {
            Self::Fixed { bytes, .. } => Content::Bytes(bytes.into()),
            Self::Strings(texts) => Content::Strings(texts),
        }
    }
}

fn pad<T: Clone + Default>(
    items: Vec<T>,
    runs: impl ExactSizeIterator<Item = usize>,
    padded: usize,
) -> Vec<T> {
    let mut result = Vec::with_capacity(runs.len() * padded);
    let mut rest = items.as_slice();
    for run in runs {
        let (head, tail) = rest.split_at(run);
        result.extend_from_slice(head);
        result.resize(result.len() + padded - run, T::default());
        rest = tail;
    }
    result
}
