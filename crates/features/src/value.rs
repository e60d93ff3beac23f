//! Raw values in any of the forms in which a request sends them.

mod mixed;
mod sparse;

use crate::wire::Reader;
pub(crate) use mixed::put_mixed;
pub(crate) use sparse::{SparseCells, SparseList, Weights};

/// One feature's value as a vector, independent of its representation.
pub(crate) trait Values<'a> {
    /// The number of values.
    fn len(&self) -> usize;

    /// The values in order; [`Self::len`] of them.
    fn scalars(&self) -> impl Iterator<Item = Scalar<'a>>;

    /// The values as little-endian float32, if that is how they are stored.
    fn floats(&self) -> Option<&'a [u8]> {
        None
    }

    /// The weights of the ids of a sparse list; those of other values are 1.
    fn weights(&self) -> Weights<'a> {
        Weights::Ones
    }
}

/// One raw value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar<'a> {
    Real(f64),
    Integer(i64),
    Flag(bool),
    /// UTF-8.
    Text(&'a [u8]),
    /// An id of a sparse list.
    Id(u64),
    /// A name of a sparse list, in UTF-8.
    Name(&'a [u8]),
    /// A value that no feature accepts: a list within a list, an object, or a null within a list.
    Other,
}

/// One feature's value: a scalar or a vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    One(Scalar<'a>),
    /// Little-endian float32.
    PackedFloats(&'a [u8]),
    /// Little-endian float64.
    PackedReals(&'a [u8]),
    Integers(&'a [i64]),
    /// Varints and their number.
    PackedIntegers(&'a [u8], usize),
    /// Texts of a columnar request.
    Slices(&'a [&'a [u8]]),
    /// Texts and their number; each follows a field key of one byte and its length.
    EncodedTexts(&'a [u8], usize),
    /// Values of an object's list and their number, of any types, written by
    /// [`put_mixed`].
    Mixed(&'a [u8], usize),
    /// An encoded sparse list and the number of its ids and names.
    Sparse(SparseList<'a>, usize),
    /// Values of a sparse column: the first one's position, and their number.
    SparseCells(&'a SparseCells<'a>, usize, usize),
}

impl<'a> Values<'a> for Value<'a> {
    fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::PackedFloats(bytes) => bytes.len() / 4,
            Self::PackedReals(bytes) => bytes.len() / 8,
            Self::Integers(values) => values.len(),
            Self::PackedIntegers(_, count)
            | Self::EncodedTexts(_, count)
            | Self::Mixed(_, count) => *count,
            Self::Slices(values) => values.len(),
            Self::Sparse(_, count) | Self::SparseCells(_, _, count) => *count,
        }
    }

    fn scalars(&self) -> impl Iterator<Item = Scalar<'a>> {
        let (rest, names) = match self {
            Self::PackedIntegers(bytes, _)
            | Self::EncodedTexts(bytes, _)
            | Self::Mixed(bytes, _) => (*bytes, &[][..]),
            Self::Sparse(list, _) => (list.ids(), list.names()),
            _ => (&[][..], &[][..]),
        };
        Scalars { value: *self, index: 0, rest: Reader::new(rest), names: Reader::new(names) }
    }

    fn weights(&self) -> Weights<'a> {
        match self {
            Self::Sparse(list, _) => Weights::of(list.weights()),
            Self::SparseCells(cells, start, count) => cells.weights(*start..start + count),
            _ => Weights::Ones,
        }
    }

    fn floats(&self) -> Option<&'a [u8]> {
        match self {
            Self::PackedFloats(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// The values of a [`Value`].
#[derive(Debug)]
struct Scalars<'a> {
    value: Value<'a>,
    index: usize,
    /// The unread bytes of values with a variable length.
    rest: Reader<'a>,
    /// The unread names of a sparse list.
    names: Reader<'a>,
}

impl<'a> Iterator for Scalars<'a> {
    type Item = Scalar<'a>;

    fn next(&mut self) -> Option<Scalar<'a>> {
        let index = self.index;
        self.index += 1;
        Some(match self.value {
            Value::One(value) => return (index == 0).then_some(value),
            Value::PackedFloats(bytes) => {
                let (elements, _) = bytes.as_chunks::<4>();
                Scalar::Real(f32::from_le_bytes(*elements.get(index)?).into())
            }
            Value::PackedReals(bytes) => {
                let (elements, _) = bytes.as_chunks::<8>();
                Scalar::Real(f64::from_le_bytes(*elements.get(index)?))
            }
            Value::Integers(values) => Scalar::Integer(*values.get(index)?),
            Value::PackedIntegers(..) => Scalar::Integer(self.rest.varint().ok()?.cast_signed()),
            Value::Slices(values) => Scalar::Text(values.get(index)?),
            Value::EncodedTexts(..) => {
                self.rest.key().ok()?;
                Scalar::Text(self.rest.bytes().ok()?)
            }
            Value::Sparse(..) if !self.rest.is_empty() => Scalar::Id(self.rest.varint().ok()?),
            Value::Sparse(..) => {
                self.names.key().ok()?;
                Scalar::Name(self.names.bytes().ok()?)
            }
            Value::SparseCells(cells, start, count) => {
                if index == count {
                    return None;
                }
                cells.scalar(start + index)?
            }
            Value::Mixed(..) => mixed::read(&mut self.rest)?,
        })
    }
}

/// The float32 at `index` of little-endian bytes.
pub(crate) fn float_at(bytes: &[u8], index: usize) -> f32 {
    let four = bytes[4 * index..4 * index + 4].try_into().expect("a slice of four");
    f32::from_le_bytes(four)
}
