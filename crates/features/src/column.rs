//! One feature, compiled: encodes raw values as elements of its tensor.

mod buffer;
mod codec;
pub(crate) mod floats;
mod lists;
mod sparse;

use std::sync::Arc;

use outrigger_core::{DType, Reason};
use outrigger_proto::outrigger::v1::ValueOrigin;

use crate::{
    metadata::{Absence, Feature, Raw, Size},
    value::{Scalar, Values},
};
pub(crate) use buffer::{Buffer, Element, Sink, WEIGHTED};
use codec::{Codec, Encoded};
pub(crate) use lists::RowLists;
use sparse::Sparse;

/// A feature ready to encode values.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) feature: Arc<str>,
    /// The number of its positions in a row of the input; 1 if that has `lengths`: its list.
    pub(crate) length: usize,
    /// The most values that a request may send.
    pub(crate) most: usize,
    /// The values of a row with fewer.
    rest: Rest,
    codec: Codec,
    absent: Absent,
}

/// The positions of a row after the values that were sent.
#[derive(Debug)]
enum Rest {
    /// None: the number of values is always the same.
    Exact,
    /// They have this element.
    Padding(Element<'static>),
    /// None: a row is a list of its own.
    Ragged,
    /// None: a row has only the ids that were sent.
    Sparse(Sparse),
}

#[derive(Debug)]
enum Absent {
    Required,
    Default(Vec<Element<'static>>),
    Nan,
}

/// The reason why a value cannot be encoded. The message never contains the value itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Problem {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl Column {
    /// Compiles a feature of a tensor of type `dtype`.
    pub(crate) fn compile(feature: &Feature, dtype: DType) -> Self {
        let codec = match feature.size {
            Size::WeightOf(_) => Codec::plain(DType::Float32, feature.allow_non_finite),
            _ => Codec::compile(feature, dtype),
        };
        let (rest, length) = match &feature.size {
            Size::Exact => (Rest::Exact, feature.length),
            Size::Padded(padding) => {
                let element = encode(&Codec::plain(dtype, true), padding);
                (Rest::Padding(element), feature.length)
            }
            Size::Ragged => (Rest::Ragged, 1),
            Size::Sparse | Size::WeightOf(_) => (Rest::Sparse(Sparse::compile(feature)), 1),
        };
        let absent = match (&feature.absence, &rest) {
            (Absence::Required, _) => Absent::Required,
            (Absence::Nan, _) => Absent::Nan,
            (Absence::Default(values), Rest::Sparse(sparse)) => {
                Absent::Default(sparse.default(&codec, values))
            }
            (Absence::Default(values), _) => Absent::Default(encode_default(&codec, values)),
        };
        Self { feature: feature.name.clone(), length, most: feature.length, rest, codec, absent }
    }

    /// True if a row has one value.
    pub(crate) fn is_scalar(&self) -> bool {
        self.most == 1 && !matches!(self.rest, Rest::Ragged | Rest::Sparse(_))
    }

    /// Appends the feature's elements for a row and returns the origin of the values.
    ///
    /// Some of the elements may already be appended when an error is returned.
    pub(crate) fn write<'a>(
        &self,
        value: Option<&impl Values<'a>>,
        out: &mut impl Sink,
    ) -> Result<ValueOrigin, Problem> {
        out.begin();
        match value {
            Some(value) => self.write_value(value, out),
            None => self.write_absent(out),
        }
    }

    /// True if a value may be ids with weights.
    pub(crate) fn takes_ids(&self) -> bool {
        matches!(&self.rest, Rest::Sparse(sparse) if sparse.is_list())
    }

    /// True if a finite float32 is written to its position in the tensor unchanged.
    pub(crate) fn takes_floats(&self) -> bool {
        matches!((&self.codec, &self.rest), (Codec::Float32 { .. }, Rest::Exact | Rest::Padding(_)))
    }

    /// Whether NaN and infinity are accepted.
    pub(crate) fn takes_non_finite(&self) -> bool {
        matches!(
            self.codec,
            Codec::Float32 { allow_non_finite: true } | Codec::Float64 { allow_non_finite: true }
        )
    }

    /// Writes an unremarkable value at position `at`: a value that is valid and, if there
    /// is a vocabulary, part of it. Returns false for any other value; the position may
    /// then have been overwritten.
    #[inline]
    pub(crate) fn put(&self, scalar: Scalar<'_>, buffer: &mut Buffer, at: usize) -> bool {
        if let Some(value) = self.codec.known_integer(scalar) {
            return buffer.put_integer(at, value);
        }
        let element = self.plain_element(scalar);
        element.map(|element| buffer.put(at, element)).is_some()
    }

    /// As [`Self::put`], for a word of the vocabulary or a text to be hashed; false for any other.
    // Called for every text: left to the compiler, it becomes several calls.
    #[inline(always)]
    pub(crate) fn put_word(&self, text: &[u8], buffer: &mut Buffer, at: usize) -> bool {
        let known = self.codec.known_integer(Scalar::Text(text));
        known.is_some_and(|value| buffer.put_integer(at, value))
    }

    fn plain_element<'a>(&self, scalar: Scalar<'a>) -> Option<Element<'a>> {
        match self.codec.encode(scalar) {
            Ok(Encoded::Known(element)) => Some(element),
            Ok(Encoded::OutOfVocabulary(_)) | Err(_) => None,
        }
    }

    fn write_value<'a>(
        &self,
        value: &impl Values<'a>,
        out: &mut impl Sink,
    ) -> Result<ValueOrigin, Problem> {
        self.check_length(value.len())?;
        if let Rest::Sparse(sparse) = &self.rest {
            return sparse.write(&self.codec, value, out);
        }
        let origin = self.write_elements(value, out)?;
        self.pad(value.len(), out);
        Ok(origin)
    }

    fn write_elements<'a>(
        &self,
        value: &impl Values<'a>,
        out: &mut impl Sink,
    ) -> Result<ValueOrigin, Problem> {
        if let Some(bytes) = value.floats()
            && matches!(self.codec, Codec::Float32 { .. })
            && floats::all_finite(bytes)
        {
            out.push_floats(bytes);
            return Ok(ValueOrigin::Request);
        }
        let mut origin = ValueOrigin::Request;
        for scalar in value.scalars() {
            match self.codec.encode(scalar)? {
                Encoded::Known(element) => out.push(element),
                Encoded::OutOfVocabulary(element) => {
                    origin = ValueOrigin::OutOfVocabulary;
                    out.push(element);
                }
            }
        }
        Ok(origin)
    }

    /// Writes the elements after the `written` ones of a padded list.
    fn pad(&self, written: usize, out: &mut impl Sink) {
        if let Rest::Padding(element) = &self.rest {
            (written..self.most).for_each(|_| out.push(element.clone()));
        }
    }

    /// Refuses another number of values than the feature has.
    pub(crate) fn check_length(&self, found: usize) -> Result<(), Problem> {
        let (is_list, most) = (self.is_list(), self.most);
        if found == most || is_list && found < most {
            return Ok(());
        }
        let at_most = if is_list { "at most " } else { "" };
        let message = format!("expected {at_most}{most} values, found {found}");
        Err(Problem::new(Reason::FeatureLength, message))
    }

    /// True if fewer values than the most are accepted.
    fn is_list(&self) -> bool {
        match &self.rest {
            Rest::Exact => false,
            Rest::Padding(_) | Rest::Ragged => true,
            Rest::Sparse(sparse) => sparse.is_list(),
        }
    }

    fn write_absent(&self, out: &mut impl Sink) -> Result<ValueOrigin, Problem> {
        match &self.absent {
            Absent::Required => Err(Problem::new(Reason::FeatureMissing, "required, but not sent")),
            Absent::Default(elements) => {
                elements.iter().for_each(|element| out.push(element.clone()));
                self.pad(elements.len(), out);
                Ok(ValueOrigin::Default)
            }
            Absent::Nan => {
                (0..self.length).for_each(|_| out.push(self.codec.nan()));
                Ok(ValueOrigin::Missing)
            }
        }
    }
}

fn encode_default(codec: &Codec, values: &[Raw]) -> Vec<Element<'static>> {
    values.iter().map(|raw| encode(codec, raw)).collect()
}

/// A raw value of metadata.json as an element.
fn encode(codec: &Codec, raw: &Raw) -> Element<'static> {
    match codec.encode(scalar(raw)).expect("the parser checked the value") {
        Encoded::Known(element) | Encoded::OutOfVocabulary(element) => element.into_shared(),
    }
}

/// A raw value of metadata.json as a request would send it.
fn scalar(raw: &Raw) -> Scalar<'_> {
    match raw {
        Raw::Real(value) => Scalar::Real(*value),
        Raw::Integer(value) => Scalar::Integer(*value),
        Raw::Flag(value) => Scalar::Flag(*value),
        Raw::Text(value) => Scalar::Text(value.as_bytes()),
        Raw::Id(value) => Scalar::Id(*value),
    }
}

#[cfg(test)]
mod tests;
