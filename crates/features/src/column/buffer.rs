//! A tensor's elements while they are written.

use std::ops::Range;

use bytes::Bytes;
use outrigger_core::{Content, DType};

use super::lists::RowLists;

/// One encoded element.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Element<'a> {
    Float32(f32),
    Float64(f64),
    Int32(i32),
    Int64(i64),
    Bool(bool),
    /// A text to be copied.
    Text(&'a [u8]),
    /// A text that many elements share, such as a default.
    Shared(Bytes),
    /// An id of a sparse row with its weight.
    Weighted(u64, f32),
}

/// The bytes of an id with its weight.
pub(crate) const WEIGHTED: usize = 12;

impl Element<'_> {
    /// Detaches the element from the value that it was encoded from.
    pub(crate) fn into_shared(self) -> Element<'static> {
        match self {
            Self::Float32(value) => Element::Float32(value),
            Self::Float64(value) => Element::Float64(value),
            Self::Int32(value) => Element::Int32(value),
            Self::Int64(value) => Element::Int64(value),
            Self::Bool(value) => Element::Bool(value),
            Self::Text(text) => Element::Shared(Bytes::copy_from_slice(text)),
            Self::Shared(text) => Element::Shared(text),
            Self::Weighted(id, weight) => Element::Weighted(id, weight),
        }
    }
}

/// A destination of encoded elements, which are written one after the other.
pub(crate) trait Sink {
    /// Starts the value of a feature: a list begins with the next element.
    fn begin(&mut self) {}

    /// Takes the next element, which must be of the tensor's type.
    fn push(&mut self, element: Element<'_>);

    /// Takes the next `bytes.len() / 4` elements of a float32 tensor, as
    /// little-endian bytes.
    fn push_floats(&mut self, bytes: &[u8]);
}

/// Elements of one type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Buffer {
    /// Little-endian elements of `size` bytes each. An id with its weight is one element.
    Fixed { bytes: Vec<u8>, size: usize },
    /// Strings. Those sent in requests are stored in `arena`, so that none is allocated
    /// on its own.
    Strings { texts: Vec<Text>, arena: Vec<u8> },
    /// All elements of a float32 tensor, as a slice of the request's bytes.
    Shared(Bytes),
    /// A list for each row.
    Lists(RowLists),
}

/// One string of a buffer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Text {
    /// A string sent in a request, as a range of the arena.
    Sent(Range<usize>),
    /// A string shared by reference, such as a default.
    Shared(Bytes),
}

impl Default for Text {
    fn default() -> Self {
        Self::Shared(Bytes::new())
    }
}

/// Writes a buffer's elements from a position on.
#[derive(Debug)]
pub(crate) struct Cursor<'b> {
    buffer: &'b mut Buffer,
    at: usize,
    /// The positions from one element to the next: 0 for those of a list.
    step: usize,
}

impl Buffer {
    /// Creates an empty buffer with room for `elements`.
    pub(crate) fn new(dtype: DType, elements: usize) -> Self {
        match dtype.size() {
            Some(size) => Self::Fixed { bytes: Vec::with_capacity(elements * size), size },
            None => Self::Strings { texts: Vec::with_capacity(elements), arena: Vec::new() },
        }
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Fixed { bytes, size } => bytes.len() / size,
            Self::Strings { texts, .. } => texts.len(),
            Self::Shared(floats) => floats.len() / 4,
            Self::Lists(lists) => lists.rows.len(),
        }
    }

    /// Truncates the buffer to `elements`, or extends it with zeros, false or empty
    /// strings.
    pub(crate) fn resize(&mut self, elements: usize) {
        match self {
            Self::Fixed { bytes, size } => bytes.resize(elements * *size, 0),
            Self::Strings { texts, .. } => texts.resize(elements, Text::default()),
            Self::Shared(floats) => {
                let mut bytes = floats.to_vec();
                bytes.resize(4 * elements, 0);
                *self = Self::Fixed { bytes, size: 4 };
            }
            Self::Lists(lists) => lists.rows.resize(elements, 0..0),
        }
    }

    /// A cursor that writes elements from position `at` on.
    pub(crate) fn cursor(&mut self, at: usize) -> Cursor<'_> {
        let step = usize::from(!matches!(self, Self::Lists(_)));
        Cursor { buffer: self, at, step }
    }

    /// Replaces the element at `at`; it must be of the buffer's type.
    pub(crate) fn put(&mut self, at: usize, element: Element<'_>) {
        match (self, element) {
            (Self::Fixed { bytes, .. }, Element::Float32(value)) => {
                put(bytes, at, value.to_le_bytes());
            }
            (Self::Fixed { bytes, .. }, Element::Float64(value)) => {
                put(bytes, at, value.to_le_bytes());
            }
            (Self::Fixed { bytes, .. }, Element::Int32(value)) => {
                put(bytes, at, value.to_le_bytes());
            }
            (Self::Fixed { bytes, .. }, Element::Int64(value)) => {
                put(bytes, at, value.to_le_bytes());
            }
            (Self::Fixed { bytes, .. }, Element::Bool(value)) => put(bytes, at, [value.into()]),
            (Self::Fixed { bytes, .. }, Element::Weighted(id, weight)) => {
                put(bytes, at, weighted(id, weight));
            }
            (Self::Strings { texts, arena }, Element::Text(text)) => {
                let start = arena.len();
                arena.extend_from_slice(text);
                texts[at] = Text::Sent(start..arena.len());
            }
            (Self::Strings { texts, .. }, Element::Shared(text)) => texts[at] = Text::Shared(text),
            (Self::Lists(lists), element) => lists.push(at, |items| items.push(element)),
            (buffer, element) => unreachable!("{element:?} in {buffer:?}"),
        }
    }

    /// Replaces the element at `at` of a float32 tensor.
    #[inline]
    pub(crate) fn put_float(&mut self, at: usize, bits: u32) {
        match self {
            Self::Fixed { bytes, .. } => put(bytes, at, bits.to_le_bytes()),
            Self::Strings { .. } => unreachable!("a float among strings"),
            Self::Shared(_) => unreachable!("a request is not written to"),
            Self::Lists(_) => unreachable!("a float in place of a list"),
        }
    }

    /// The `count` elements of a float32 tensor from `start` on.
    #[inline]
    pub(crate) fn floats_mut(&mut self, start: usize, count: usize) -> &mut [[u8; 4]] {
        match self {
            Self::Fixed { bytes, .. } => &mut bytes.as_chunks_mut().0[start..start + count],
            Self::Strings { .. } => unreachable!("floats among strings"),
            Self::Shared(_) => unreachable!("a request is not written to"),
            Self::Lists(_) => unreachable!("floats in place of a list"),
        }
    }

    /// Replaces the element at `at` of an int32 or int64 tensor; returns false if the
    /// value does not fit.
    #[inline]
    pub(crate) fn put_integer(&mut self, at: usize, value: i64) -> bool {
        match self {
            Self::Fixed { bytes, size: 8 } => {
                put(bytes, at, value.to_le_bytes());
                true
            }
            Self::Fixed { bytes, .. } => {
                let narrow = i32::try_from(value);
                narrow.map(|value| put(bytes, at, value.to_le_bytes())).is_ok()
            }
            Self::Strings { .. } => unreachable!("an integer among strings"),
            Self::Shared(_) => unreachable!("an integer among floats"),
            Self::Lists(_) => unreachable!("an integer in place of a list"),
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

    /// Splits the buffer into runs of the given lengths and fills each up to
    /// `padded` elements with zeros, false, empty strings or empty lists.
    pub(crate) fn pad(self, runs: &[usize], padded: usize) -> Self {
        match self {
            Self::Fixed { bytes, size } => {
                let runs = runs.iter().map(|run| run * size);
                Self::Fixed { bytes: pad(bytes, runs, padded * size), size }
            }
            Self::Strings { texts, arena } => {
                Self::Strings { texts: pad(texts, runs.iter().copied(), padded), arena }
            }
            Self::Shared(floats) => Self::Fixed { bytes: floats.into(), size: 4 }.pad(runs, padded),
            Self::Lists(RowLists { items, rows }) => {
                Self::Lists(RowLists { items, rows: pad(rows, runs.iter().copied(), padded) })
            }
        }
    }

    /// The elements in these ranges, one after the other.
    pub(super) fn gathered(self, ranges: &[Range<usize>]) -> Self {
        match self {
            Self::Fixed { size, .. } => {
                let bytes = ranges.iter().flat_map(|range| self.bytes_of(range));
                Self::Fixed { bytes: bytes.copied().collect(), size }
            }
            Self::Strings { texts, arena } => {
                let texts = ranges.iter().flat_map(|range| &texts[range.clone()]).cloned();
                Self::Strings { texts: texts.collect(), arena }
            }
            other => unreachable!("{other:?} within lists"),
        }
    }

    /// The bytes of these elements, which are no strings.
    pub(super) fn bytes_of(&self, range: &Range<usize>) -> &[u8] {
        match self {
            Self::Fixed { bytes, size } => &bytes[size * range.start..size * range.end],
            other => unreachable!("bytes of {other:?}"),
        }
    }

    /// The elements as a tensor's content: of lists, those of all rows.
    pub(crate) fn into_content(self) -> Content {
        match self {
            Self::Fixed { bytes, .. } => Content::Bytes(bytes.into()),
            Self::Strings { texts, arena } => {
                let arena = Bytes::from(arena);
                let text = |text| match text {
                    Text::Sent(range) => arena.slice(range),
                    Text::Shared(text) => text,
                };
                Content::Strings(texts.into_iter().map(text).collect())
            }
            Self::Shared(floats) => Content::Bytes(floats),
            Self::Lists(lists) => lists.into_items().into_content(),
        }
    }
}

impl Sink for Buffer {
    fn begin(&mut self) {
        if let Self::Lists(lists) = self {
            lists.rows.push(0..0);
            lists.begin(lists.rows.len() - 1);
        }
    }

    fn push(&mut self, element: Element<'_>) {
        if let Self::Lists(lists) = self {
            return lists.push(lists.rows.len() - 1, |items| items.push(element));
        }
        let end = self.len();
        self.resize(end + 1);
        self.put(end, element);
    }

    fn push_floats(&mut self, floats: &[u8]) {
        match self {
            Self::Fixed { bytes, size: 4 } => bytes.extend_from_slice(floats),
            Self::Lists(lists) => {
                lists.push(lists.rows.len() - 1, |items| items.push_floats(floats));
            }
            buffer => unreachable!("floats in {buffer:?}"),
        }
    }
}

impl Sink for Cursor<'_> {
    fn begin(&mut self) {
        if let Buffer::Lists(lists) = self.buffer {
            lists.begin(self.at);
        }
    }

    fn push(&mut self, element: Element<'_>) {
        self.buffer.put(self.at, element);
        self.at += self.step;
    }

    fn push_floats(&mut self, floats: &[u8]) {
        match &mut *self.buffer {
            Buffer::Lists(lists) => lists.push(self.at, |items| items.push_floats(floats)),
            Buffer::Fixed { bytes, size: 4 } => {
                let start = 4 * self.at;
                bytes[start..start + floats.len()].copy_from_slice(floats);
            }
            buffer => unreachable!("floats in {buffer:?}"),
        }
        self.at += self.step * floats.len() / 4;
    }
}

fn weighted(id: u64, weight: f32) -> [u8; WEIGHTED] {
    let mut bytes = [0; WEIGHTED];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..].copy_from_slice(&weight.to_le_bytes());
    bytes
}

#[inline]
fn put<const N: usize>(bytes: &mut [u8], at: usize, element: [u8; N]) {
    bytes[at * N..(at + 1) * N].copy_from_slice(&element);
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
