//! Sparse lists: ids, or names of ids, with their weights.

use std::ops::Range;

use super::Scalar;
use crate::wire::Reader;

/// The weights of a sparse list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Weights<'a> {
    /// 1 for each id.
    Ones,
    /// Little-endian float32.
    Bytes(&'a [u8]),
    #[cfg(any(test, feature = "reference"))]
    Floats(&'a [f32]),
}

impl<'a> Weights<'a> {
    /// The weights in these bytes; a list without any has 1 for each id.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        if bytes.is_empty() { Self::Ones } else { Self::Bytes(bytes) }
    }

    /// The number of weights that were sent, if there are any.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::Ones => None,
            Self::Bytes(bytes) => Some(bytes.len() / 4),
            #[cfg(any(test, feature = "reference"))]
            Self::Floats(weights) => Some(weights.len()),
        }
    }

    /// The weight of the id at `index`.
    pub(crate) fn at(&self, index: usize) -> f32 {
        match self {
            Self::Ones => 1.0,
            Self::Bytes(bytes) => super::float_at(bytes, index),
            #[cfg(any(test, feature = "reference"))]
            Self::Floats(weights) => weights[index],
        }
    }
}

/// An encoded `outrigger.v1.SparseList` whose fields are in the order of their numbers, packed
/// and each but the names at most once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SparseList<'a> {
    body: &'a [u8],
}

impl<'a> SparseList<'a> {
    /// Checks the encoding of a list; also returns the number of its ids and names. `None` if the
    /// encoding is unusual or invalid.
    pub(crate) fn read(body: &'a [u8]) -> Option<(Self, usize)> {
        let (list, mut count) = (Self { body }, 0);
        let [ids, weights, names] = split(body)?;
        if !weights.len().is_multiple_of(4) {
            return None;
        }
        let mut rest = Reader::new(ids);
        while !rest.is_empty() {
            rest.varint().ok()?;
            count += 1;
        }
        let mut rest = Reader::new(names);
        while !rest.is_empty() {
            if !rest.accept(0x1a) {
                return None;
            }
            rest.text_bytes().ok()?;
            count += 1;
        }
        Some((list, count))
    }

    /// Varints.
    pub(super) fn ids(&self) -> &'a [u8] {
        self.parts()[0]
    }

    /// Little-endian float32.
    pub(super) fn weights(&self) -> &'a [u8] {
        self.parts()[1]
    }

    /// Texts, each after a field key of one byte and its length.
    pub(super) fn names(&self) -> &'a [u8] {
        self.parts()[2]
    }

    fn parts(&self) -> [&'a [u8]; 3] {
        split(self.body).unwrap_or_default()
    }
}

/// The content of the packed ids and weights, and the fields after them.
fn split(body: &[u8]) -> Option<[&[u8]; 3]> {
    let mut rest = Reader::new(body);
    let ids = if rest.accept(0x0a) { rest.bytes().ok()? } else { &[] };
    let weights = if rest.accept(0x12) { rest.bytes().ok()? } else { &[] };
    Some([ids, weights, rest.rest()])
}

/// The values of a sparse column of a table.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SparseCells<'a> {
    pub(crate) ids: Vec<u64>,
    /// Names, in place of ids.
    pub(crate) names: Vec<&'a [u8]>,
    /// Little-endian float32; empty if all are 1.
    pub(crate) weights: &'a [u8],
}

impl<'a> SparseCells<'a> {
    /// The number of ids, or of names.
    pub(crate) fn len(&self) -> usize {
        self.ids.len().max(self.names.len())
    }

    pub(super) fn scalar(&self, index: usize) -> Option<Scalar<'a>> {
        let id = self.ids.get(index).map(|id| Scalar::Id(*id));
        id.or_else(|| self.names.get(index).map(|name| Scalar::Name(name)))
    }

    pub(super) fn weights(&self, cells: Range<usize>) -> Weights<'a> {
        match self.weights {
            [] => Weights::Ones,
            weights => Weights::Bytes(&weights[4 * cells.start..4 * cells.end]),
        }
    }
}
