//! Raw values, whichever form they were sent in.

use outrigger_proto::outrigger::v1::{self, value::Kind};
use prost_types::value::Kind as ObjectKind;

/// One raw value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar<'a> {
    Real(f64),
    Integer(i64),
    Flag(bool),
    Text(&'a str),
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
    Integers(&'a [i64]),
    Texts(&'a [String]),
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
            Kind::Text(value) => Self::One(Scalar::Text(value)),
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
            Self::Integers(values) => values.len(),
            Self::Texts(values) => values.len(),
            Self::List(values) => values.len(),
        }
    }

    /// The value at `index`, which must be below [`Self::len`].
    pub(crate) fn get(&self, index: usize) -> Scalar<'a> {
        match self {
            Self::One(value) => *value,
            Self::Floats(values) => Scalar::Real(values[index].into()),
            Self::PackedFloats(bytes) => Scalar::Real(float_at(bytes, index).into()),
            Self::Reals(values) => Scalar::Real(values[index]),
            Self::Integers(values) => Scalar::Integer(values[index]),
            Self::Texts(values) => Scalar::Text(&values[index]),
            Self::List(values) => scalar_of(&values[index]),
        }
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
        Some(ObjectKind::StringValue(value)) => Scalar::Text(value),
        Some(ObjectKind::BoolValue(value)) => Scalar::Flag(*value),
        _ => Scalar::Other,
    }
}
