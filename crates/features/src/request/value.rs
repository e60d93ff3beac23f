//! Raw values, whichever form they were sent in.

use outrigger_proto::outrigger::v1::{self, value::Kind};
use prost_types::value::Kind as ObjectKind;

use crate::transcode::Reader;

/// One raw value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar<'a> {
    Real(f64),
    Integer(i64),
    Flag(bool),
    /// UTF-8.
    Text(&'a [u8]),
    /// Something no feature takes: a list in a list, an object, a null in a list.
    Other,
}

/// One feature's value: a scalar or a vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    One(Scalar<'a>),
    Floats(&'a [f32]),
    /// Little-endian float32.
    PackedFloats(&'a [u8]),
    Reals(&'a [f64]),
    /// Little-endian float64.
    PackedReals(&'a [u8]),
    Integers(&'a [i64]),
    /// So many varints.
    PackedIntegers(&'a [u8], usize),
    Texts(&'a [String]),
    /// Texts of a columnar request.
    Slices(&'a [&'a [u8]]),
    /// So many texts, each behind a field key of one byte and its length.
    EncodedTexts(&'a [u8], usize),
    List(&'a [prost_types::Value]),
}

impl<'a> Value<'a> {
    /// The value of a key-value pair; `None` is absence.
    pub(crate) fn of(value: &'a v1::Value) -> Option<Self> {
        Some(match value.kind.as_ref()? {
            Kind::Number(value) => Self::One(Scalar::Real((*value).into())),
            Kind::Real(value) => Self::One(Scalar::Real(*value)),
            Kind::Integer(value) => Self::One(Scalar::Integer(*value)),
            Kind::Flag(value) => Self::One(Scalar::Flag(*value)),
            Kind::Text(value) => Self::One(Scalar::Text(value.as_bytes())),
            Kind::Numbers(list) => Self::Floats(&list.values),
            Kind::Reals(list) => Self::Reals(&list.values),
            Kind::Integers(list) => Self::Integers(&list.values),
            Kind::Texts(list) => Self::Texts(&list.values),
        })
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Floats(values) => values.len(),
            Self::PackedFloats(bytes) => bytes.len() / 4,
            Self::Reals(values) => values.len(),
            Self::PackedReals(bytes) => bytes.len() / 8,
            Self::Integers(values) => values.len(),
            Self::PackedIntegers(_, count) | Self::EncodedTexts(_, count) => *count,
            Self::Texts(values) => values.len(),
            Self::Slices(values) => values.len(),
            Self::List(values) => values.len(),
        }
    }

    /// The values in order; [`Self::len`] of them.
    pub(crate) fn scalars(&self) -> Scalars<'a> {
        let rest = match self {
            Self::PackedIntegers(bytes, _) | Self::EncodedTexts(bytes, _) => bytes,
            _ => &[][..],
        };
        Scalars { value: *self, index: 0, rest: Reader::new(rest) }
    }
}

/// The values of a [`Value`].
#[derive(Debug)]
pub(crate) struct Scalars<'a> {
    value: Value<'a>,
    index: usize,
    /// What has not been read yet of values whose length varies.
    rest: Reader<'a>,
}

impl<'a> Iterator for Scalars<'a> {
    type Item = Scalar<'a>;

    fn next(&mut self) -> Option<Scalar<'a>> {
        let index = self.index;
        self.index += 1;
        Some(match self.value {
            Value::One(value) => return (index == 0).then_some(value),
            Value::Floats(values) => Scalar::Real((*values.get(index)?).into()),
            Value::PackedFloats(bytes) => {
                let (elements, _) = bytes.as_chunks::<4>();
                Scalar::Real(f32::from_le_bytes(*elements.get(index)?).into())
            }
            Value::Reals(values) => Scalar::Real(*values.get(index)?),
            Value::PackedReals(bytes) => {
                let (elements, _) = bytes.as_chunks::<8>();
                Scalar::Real(f64::from_le_bytes(*elements.get(index)?))
            }
            Value::Integers(values) => Scalar::Integer(*values.get(index)?),
            Value::PackedIntegers(..) => Scalar::Integer(self.rest.varint().ok()?.cast_signed()),
            Value::Texts(values) => Scalar::Text(values.get(index)?.as_bytes()),
            Value::Slices(values) => Scalar::Text(values.get(index)?),
            Value::EncodedTexts(..) => {
                self.rest.key().ok()?;
                Scalar::Text(self.rest.bytes().ok()?)
            }
            Value::List(values) => scalar_of(values.get(index)?),
        })
    }
}

/// The float32 at `index` of little-endian bytes.
pub(crate) fn float_at(bytes: &[u8], index: usize) -> f32 {
    let four = bytes[4 * index..4 * index + 4].try_into().expect("a slice of four");
    f32::from_le_bytes(four)
}

/// A leaf of an object as a scalar.
pub(crate) fn scalar_of(value: &prost_types::Value) -> Scalar<'_> {
    match &value.kind {
        Some(ObjectKind::NumberValue(value)) => Scalar::Real(*value),
        Some(ObjectKind::StringValue(value)) => Scalar::Text(value.as_bytes()),
        Some(ObjectKind::BoolValue(value)) => Scalar::Flag(*value),
        _ => Scalar::Other,
    }
}
