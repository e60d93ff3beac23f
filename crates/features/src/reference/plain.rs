//! Values as prost has decoded them.

use outrigger_proto::outrigger::v1::{self, value::Kind};

use super::object::scalar_of;
use crate::request::{Scalar, Value};

/// The values of a vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Plain<'a> {
    Floats(&'a [f32]),
    Reals(&'a [f64]),
    Texts(&'a [String]),
    Values(&'a [prost_types::Value]),
}

impl<'a> Plain<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Floats(values) => values.len(),
            Self::Reals(values) => values.len(),
            Self::Texts(values) => values.len(),
            Self::Values(values) => values.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Scalar<'a>> {
        Some(match self {
            Self::Floats(values) => Scalar::Real((*values.get(index)?).into()),
            Self::Reals(values) => Scalar::Real(*values.get(index)?),
            Self::Texts(values) => Scalar::Text(values.get(index)?.as_bytes()),
            Self::Values(values) => scalar_of(values.get(index)?),
        })
    }
}

/// The value of a key-value pair; `None` is absence.
pub(super) fn value_of(value: &v1::Value) -> Option<Value<'_>> {
    Some(match value.kind.as_ref()? {
        Kind::Number(value) => Value::One(Scalar::Real((*value).into())),
        Kind::Real(value) => Value::One(Scalar::Real(*value)),
        Kind::Integer(value) => Value::One(Scalar::Integer(*value)),
        Kind::Flag(value) => Value::One(Scalar::Flag(*value)),
        Kind::Text(value) => Value::One(Scalar::Text(value.as_bytes())),
        Kind::Numbers(list) => Value::Plain(Plain::Floats(&list.values)),
        Kind::Reals(list) => Value::Plain(Plain::Reals(&list.values)),
        Kind::Integers(list) => Value::Integers(&list.values),
        Kind::Texts(list) => Value::Plain(Plain::Texts(&list.values)),
    })
}
