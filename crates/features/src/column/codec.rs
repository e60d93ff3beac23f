//! The encoding of one raw value as one element.

use std::collections::HashMap;

use outrigger_core::{DType, Reason};

use super::{Element, Problem};
use crate::{
    keys::Keys,
    metadata::{Encoding, Feature, Words},
    numbers::exact_integer,
    value::Scalar,
};

/// The encoding of one feature's values.
#[derive(Debug)]
pub(super) enum Codec {
    Float32 { allow_non_finite: bool },
    Float64 { allow_non_finite: bool },
    Integer(Width),
    Bool,
    Text,
    Texts { index: Keys, other: i64, width: Width },
    Integers { index: HashMap<i64, i64>, other: i64, width: Width },
    Buckets { count: u64, width: Width },
}

/// The type of an element that is an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Int32,
    Int64,
    /// A float that is equal to the integer.
    Float32,
    Float64,
}

/// An encoded value, marked if it is not in the vocabulary.
#[derive(Debug, PartialEq)]
pub(super) enum Encoded<'a> {
    Known(Element<'a>),
    OutOfVocabulary(Element<'a>),
}

/// The bucket of a text: FarmHash64's fingerprint modulo `count`, which is what
/// `tf.strings.to_hash_bucket_fast` computes.
pub(super) fn bucket(text: &[u8], count: u64) -> u64 {
    farmhash::fingerprint64(text) % count
}

impl Codec {
    pub(super) fn compile(feature: &Feature, dtype: DType) -> Self {
        let width = Width::of(dtype);
        match &feature.encoding {
            Encoding::Plain => Self::plain(dtype, feature.allow_non_finite),
            Encoding::HashBuckets(count) => Self::Buckets { count: *count, width },
            Encoding::Vocabulary { words, out_of_vocabulary, .. } => {
                // A sparse row without an id for other words does not use this one.
                let other = out_of_vocabulary.unwrap_or_default();
                match words {
                    Words::Texts(words) => {
                        Self::Texts { index: Keys::new(words.iter()), other, width }
                    }
                    Words::Integers(words) => {
                        Self::Integers { index: positions(words), other, width }
                    }
                }
            }
        }
    }

    /// The encoding of values that are elements of a tensor of type `dtype`.
    pub(super) fn plain(dtype: DType, allow_non_finite: bool) -> Self {
        match dtype {
            DType::Float32 => Self::Float32 { allow_non_finite },
            DType::Float64 => Self::Float64 { allow_non_finite },
            DType::Int32 | DType::Int64 => Self::Integer(Width::of(dtype)),
            DType::Bool => Self::Bool,
            // Features have no other types.
            _ => Self::Text,
        }
    }

    /// The type of elements that are integers.
    fn width(&self) -> Option<Width> {
        match self {
            Self::Integer(width)
            | Self::Texts { width, .. }
            | Self::Integers { width, .. }
            | Self::Buckets { width, .. } => Some(*width),
            Self::Float32 { .. } | Self::Float64 { .. } | Self::Bool | Self::Text => None,
        }
    }

    /// NaN in the element type of a float codec.
    pub(super) fn nan(&self) -> Element<'static> {
        match (self, self.width()) {
            (Self::Float32 { .. }, _) | (_, Some(Width::Float32)) => Element::Float32(f32::NAN),
            _ => Element::Float64(f64::NAN),
        }
    }

    pub(super) fn encode<'a>(&self, value: Scalar<'a>) -> Result<Encoded<'a>, Problem> {
        match self {
            Self::Float32 { allow_non_finite } => float32(value, *allow_non_finite),
            Self::Float64 { allow_non_finite } => float64(value, *allow_non_finite),
            Self::Integer(width) => width.element(integer(value)?).map(Encoded::Known),
            Self::Bool => flag(value),
            Self::Text => Ok(Encoded::Known(Element::Text(text(value)?))),
            Self::Texts { index, other, width } => {
                let position = index.find(text(value)?);
                word(position.map(|position| position as i64), *other, *width)
            }
            Self::Integers { index, other, width } => {
                word(index.get(&integer(value)?).copied(), *other, *width)
            }
            Self::Buckets { count, width } => {
                let bucket = bucket(text(value)?, *count).cast_signed();
                width.element(bucket).map(Encoded::Known)
            }
        }
    }

    /// The element of an integer type for a value of the right type; `None` for other elements, and
    /// if the value is invalid or out of vocabulary.
    #[inline(always)]
    pub(super) fn known_integer(&self, value: Scalar<'_>) -> Option<i64> {
        if matches!(self.width(), Some(Width::Float32 | Width::Float64)) {
            return None;
        }
        match (self, value) {
            (Self::Texts { index, .. }, Scalar::Text(text)) => {
                index.find(text).map(|position| position as i64)
            }
            (Self::Buckets { count, .. }, Scalar::Text(text)) => {
                Some(bucket(text, *count).cast_signed())
            }
            (Self::Integers { index, .. }, Scalar::Integer(value)) => index.get(&value).copied(),
            (Self::Integer(_), Scalar::Integer(value)) => Some(value),
            _ => None,
        }
    }
}

fn positions<T: Clone + Eq + std::hash::Hash>(words: &[T]) -> HashMap<T, i64> {
    words.iter().cloned().zip(0..).collect()
}

fn word(position: Option<i64>, other: i64, width: Width) -> Result<Encoded<'static>, Problem> {
    match position {
        Some(position) => width.element(position).map(Encoded::Known),
        None => width.element(other).map(Encoded::OutOfVocabulary),
    }
}

impl Width {
    fn of(dtype: DType) -> Self {
        match dtype {
            DType::Int32 => Self::Int32,
            DType::Float32 => Self::Float32,
            DType::Float64 => Self::Float64,
            _ => Self::Int64,
        }
    }

    fn element(self, value: i64) -> Result<Element<'static>, Problem> {
        match self {
            Self::Int64 => Ok(Element::Int64(value)),
            // Words and buckets fit, as the parser of metadata.json checks.
            Self::Float32 => Ok(Element::Float32(value as f32)),
            Self::Float64 => Ok(Element::Float64(value as f64)),
            Self::Int32 => i32::try_from(value)
                .map(Element::Int32)
                .map_err(|_| Problem::new(Reason::FeatureType, "does not fit an int32")),
        }
    }
}

fn float32(value: Scalar<'_>, allow_non_finite: bool) -> Result<Encoded<'static>, Problem> {
    let (rounded, finite) = match value {
        Scalar::Real(value) => (value as f32, value.is_finite()),
        Scalar::Integer(value) => (value as f32, true),
        Scalar::Flag(flag) => (f32::from(flag), true),
        other => return Err(wrong_type("a number", other)),
    };
    if finite && rounded.is_infinite() {
        return Err(Problem::new(Reason::FeatureNotFinite, "too large for a float32"));
    }
    refuse_non_finite(finite, allow_non_finite)?;
    Ok(Encoded::Known(Element::Float32(rounded)))
}

fn float64(value: Scalar<'_>, allow_non_finite: bool) -> Result<Encoded<'static>, Problem> {
    let value = match value {
        Scalar::Real(value) => value,
        Scalar::Integer(value) => value as f64,
        Scalar::Flag(flag) => f64::from(flag),
        other => return Err(wrong_type("a number", other)),
    };
    refuse_non_finite(value.is_finite(), allow_non_finite)?;
    Ok(Encoded::Known(Element::Float64(value)))
}

fn refuse_non_finite(finite: bool, allowed: bool) -> Result<(), Problem> {
    if finite || allowed {
        return Ok(());
    }
    Err(Problem::new(Reason::FeatureNotFinite, "NaN or infinite, which the model does not allow"))
}

fn integer(value: Scalar<'_>) -> Result<i64, Problem> {
    match value {
        Scalar::Integer(value) => Ok(value),
        Scalar::Flag(flag) => Ok(flag.into()),
        Scalar::Real(value) if !value.is_finite() => {
            Err(Problem::new(Reason::FeatureNotFinite, "NaN or infinite, expected an integer"))
        }
        Scalar::Real(value) => exact_integer(value).ok_or_else(|| {
            Problem::new(Reason::FeatureType, "expected an integer, found another number")
        }),
        other => Err(wrong_type("an integer", other)),
    }
}

fn flag(value: Scalar<'_>) -> Result<Encoded<'static>, Problem> {
    let flag = match value {
        Scalar::Flag(flag) => flag,
        Scalar::Integer(0) => false,
        Scalar::Integer(1) => true,
        Scalar::Real(0.0) => false,
        Scalar::Real(1.0) => true,
        other => return Err(wrong_type("a flag, 0 or 1", other)),
    };
    Ok(Encoded::Known(Element::Bool(flag)))
}

fn text(value: Scalar<'_>) -> Result<&[u8], Problem> {
    match value {
        Scalar::Text(text) => Ok(text),
        other => Err(wrong_type("text", other)),
    }
}

fn wrong_type(expected: &str, found: Scalar<'_>) -> Problem {
    let found = match found {
        Scalar::Real(_) => "a number",
        Scalar::Integer(_) => "an integer",
        Scalar::Flag(_) => "a flag",
        Scalar::Text(_) => "text",
        Scalar::Id(_) => "ids of a sparse list",
        Scalar::Name(_) => "names of a sparse list",
        Scalar::Other => "a list of lists, objects, nulls or mixed types",
    };
    Problem::new(Reason::FeatureType, format!("expected {expected}, found {found}"))
}
