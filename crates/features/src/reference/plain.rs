//! Values as decoded by prost.

use outrigger_proto::outrigger::v1::{self, SparseList, value::Kind};
use prost_types::value::Kind as ObjectKind;

use crate::value::{Scalar, Values, Weights, float_at};

/// One feature's value: a scalar or a vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Plain<'a> {
    One(Scalar<'a>),
    Floats(&'a [f32]),
    /// Little-endian float32.
    FloatBytes(&'a [u8]),
    Reals(&'a [f64]),
    Integers(&'a [i64]),
    Texts(&'a [String]),
    Values(&'a [prost_types::Value]),
    Sparse(&'a SparseList),
    /// Ids, or names, with little-endian float32 as weights.
    SparseCells {
        ids: &'a [u64],
        names: &'a [String],
        weights: &'a [u8],
    },
}

impl<'a> Plain<'a> {
    fn get(&self, index: usize) -> Scalar<'a> {
        match self {
            Self::One(value) => *value,
            Self::Floats(values) => Scalar::Real(values[index].into()),
            Self::FloatBytes(bytes) => Scalar::Real(float_at(bytes, index).into()),
            Self::Reals(values) => Scalar::Real(values[index]),
            Self::Integers(values) => Scalar::Integer(values[index]),
            Self::Texts(values) => Scalar::Text(values[index].as_bytes()),
            Self::Values(values) => scalar_of(&values[index]),
            Self::Sparse(SparseList { ids, names, .. }) => id_or_name(ids, names, index),
            Self::SparseCells { ids, names, .. } => id_or_name(ids, names, index),
        }
    }
}

impl<'a> Values<'a> for Plain<'a> {
    fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Floats(values) => values.len(),
            Self::FloatBytes(bytes) => bytes.len() / 4,
            Self::Reals(values) => values.len(),
            Self::Integers(values) => values.len(),
            Self::Texts(values) => values.len(),
            Self::Values(values) => values.len(),
            Self::Sparse(list) => list.ids.len() + list.names.len(),
            Self::SparseCells { ids, names, .. } => ids.len() + names.len(),
        }
    }

    fn weights(&self) -> Weights<'a> {
        match self {
            Self::Sparse(list) if !list.weights.is_empty() => Weights::Floats(&list.weights),
            Self::SparseCells { weights, .. } => Weights::of(weights),
            _ => Weights::Ones,
        }
    }

    fn scalars(&self) -> impl Iterator<Item = Scalar<'a>> {
        let value = *self;
        (0..self.len()).map(move |index| value.get(index))
    }
}

/// The id at an index, or the name, which are counted from the last id on.
fn id_or_name<'a>(ids: &'a [u64], names: &'a [String], index: usize) -> Scalar<'a> {
    match ids.get(index) {
        Some(id) => Scalar::Id(*id),
        None => Scalar::Name(names[index - ids.len()].as_bytes()),
    }
}

/// The value of a key-value pair; `None` is absence.
pub(super) fn value_of(value: &v1::Value) -> Option<Plain<'_>> {
    Some(match value.kind.as_ref()? {
        Kind::Number(value) => Plain::One(Scalar::Real((*value).into())),
        Kind::Real(value) => Plain::One(Scalar::Real(*value)),
        Kind::Integer(value) => Plain::One(Scalar::Integer(*value)),
        Kind::Flag(value) => Plain::One(Scalar::Flag(*value)),
        Kind::Text(value) => Plain::One(Scalar::Text(value.as_bytes())),
        Kind::Numbers(list) => Plain::Floats(&list.values),
        Kind::Reals(list) => Plain::Reals(&list.values),
        Kind::Integers(list) => Plain::Integers(&list.values),
        Kind::Texts(list) => Plain::Texts(&list.values),
        Kind::Sparse(list) => Plain::Sparse(list),
    })
}

/// Converts a leaf of an object to a scalar.
pub(super) fn scalar_of(value: &prost_types::Value) -> Scalar<'_> {
    match &value.kind {
        Some(ObjectKind::NumberValue(value)) => Scalar::Real(*value),
        Some(ObjectKind::StringValue(value)) => Scalar::Text(value.as_bytes()),
        Some(ObjectKind::BoolValue(value)) => Scalar::Flag(*value),
        _ => Scalar::Other,
    }
}
