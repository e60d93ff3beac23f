//! The encoding of a sparse feature's values: ids, each with a weight.

use outrigger_core::Reason;
use outrigger_proto::outrigger::v1::ValueOrigin;

use super::{Codec, Element, Encoded, Problem, Sink, scalar};
use crate::{
    metadata::{Encoding, Feature, Raw, Size},
    value::{Scalar, Values, Weights},
};

/// The ids that a value becomes.
#[derive(Debug)]
pub(super) enum Sparse {
    Ids(Ids),
    /// A number is the weight of this id.
    WeightOf(u64),
}

/// Ids, or names of ids, that a request sends.
#[derive(Debug)]
pub(super) struct Ids {
    /// True if values are ids, not words.
    are_plain: bool,
    /// The ids of words, by their positions; empty if those are the ids.
    of_words: Vec<u64>,
    /// True if words that are not in the vocabulary are left out.
    known_only: bool,
    allow_non_finite: bool,
}

impl Sparse {
    pub(super) fn compile(feature: &Feature) -> Self {
        if let Size::WeightOf(id) = feature.size {
            return Self::WeightOf(id);
        }
        let (of_words, known_only) = match &feature.encoding {
            Encoding::Vocabulary { ids, out_of_vocabulary, .. } => {
                (ids.clone(), out_of_vocabulary.is_none())
            }
            Encoding::Plain | Encoding::HashBuckets(_) => (Vec::new(), false),
        };
        let are_plain = feature.encoding == Encoding::Plain;
        let allow_non_finite = feature.allow_non_finite;
        Self::Ids(Ids { are_plain, of_words, known_only, allow_non_finite })
    }

    /// True if any number of values is accepted, up to the most.
    pub(super) fn is_list(&self) -> bool {
        matches!(self, Self::Ids(_))
    }

    /// The elements of a default.
    pub(super) fn default(&self, codec: &Codec, values: &[Raw]) -> Vec<Element<'static>> {
        let elements = values.iter().map(|raw| self.element(codec, scalar(raw)));
        elements.collect::<Result<_, _>>().expect("the parser checked the default")
    }

    fn element(&self, codec: &Codec, scalar: Scalar<'_>) -> Result<Element<'static>, Problem> {
        match self {
            Self::Ids(ids) => Ok(Element::Weighted(ids.id(codec, scalar)?.id, 1.0)),
            Self::WeightOf(id) => Ok(Element::Weighted(*id, weight(codec, scalar)?)),
        }
    }

    /// Appends the ids of a value with their weights.
    pub(super) fn write<'a>(
        &self,
        codec: &Codec,
        value: &impl Values<'a>,
        out: &mut impl Sink,
    ) -> Result<ValueOrigin, Problem> {
        match self {
            Self::Ids(ids) => ids.write(codec, value, out),
            Self::WeightOf(_) => {
                for scalar in value.scalars() {
                    out.push(self.element(codec, scalar)?);
                }
                Ok(ValueOrigin::Request)
            }
        }
    }
}

/// An id, marked if its word is not in the vocabulary.
struct Found {
    id: u64,
    known: bool,
}

impl Ids {
    fn write<'a>(
        &self,
        codec: &Codec,
        value: &impl Values<'a>,
        out: &mut impl Sink,
    ) -> Result<ValueOrigin, Problem> {
        let (weights, mut origin) = (self.weights(value)?, ValueOrigin::Request);
        for (index, scalar) in value.scalars().enumerate() {
            let Found { id, known } = self.id(codec, scalar)?;
            if !known {
                origin = ValueOrigin::OutOfVocabulary;
            }
            if known || !self.known_only {
                out.push(Element::Weighted(id, weights.at(index)));
            }
        }
        Ok(origin)
    }

    /// The weights of a value: as many as it has ids, and finite unless others are allowed.
    fn weights<'a>(&self, value: &impl Values<'a>) -> Result<Weights<'a>, Problem> {
        let (weights, ids) = (value.weights(), value.len());
        if let Some(found) = weights.len().filter(|found| *found != ids) {
            let message = format!("expected a weight for each of {ids} ids, found {found}");
            return Err(Problem::new(Reason::FeatureLength, message));
        }
        // No model takes an infinite weight.
        let is_allowed =
            |weight: f32| weight.is_finite() || self.allow_non_finite && weight.is_nan();
        if (0..ids).all(|at| is_allowed(weights.at(at))) {
            return Ok(weights);
        }
        let message = "a weight is NaN or infinite, which the model does not allow";
        Err(Problem::new(Reason::FeatureNotFinite, message))
    }

    fn id(&self, codec: &Codec, scalar: Scalar<'_>) -> Result<Found, Problem> {
        if self.are_plain {
            return plain(codec, scalar).map(|id| Found { id, known: true });
        }
        // Words are looked up as they are in dense rows.
        let scalar = match scalar {
            Scalar::Name(name) => Scalar::Text(name),
            Scalar::Id(id) => i64::try_from(id).map_or(Scalar::Id(id), Scalar::Integer),
            other => other,
        };
        let (element, known) = match codec.encode(scalar)? {
            Encoded::Known(element) => (element, true),
            Encoded::OutOfVocabulary(element) => (element, false),
        };
        let Element::Int64(index) = element else { unreachable!("{element:?} as an id") };
        let of_word = |index: i64| usize::try_from(index).ok().and_then(|at| self.of_words.get(at));
        let id = if known { of_word(index) } else { None };
        Ok(Found { id: id.copied().unwrap_or(index.cast_unsigned()), known })
    }
}

/// An id that a request sends as such.
fn plain(codec: &Codec, scalar: Scalar<'_>) -> Result<u64, Problem> {
    if let Scalar::Id(id) = scalar {
        return Ok(id);
    }
    let Encoded::Known(Element::Int64(id)) = codec.encode(scalar)? else {
        unreachable!("ids are int64")
    };
    u64::try_from(id).map_err(|_| Problem::new(Reason::FeatureType, "an id is not negative"))
}

/// A number as the weight of an id.
fn weight(codec: &Codec, scalar: Scalar<'_>) -> Result<f32, Problem> {
    match codec.encode(scalar)? {
        Encoded::Known(Element::Float32(weight)) => Ok(weight),
        other => unreachable!("{other:?} as a weight"),
    }
}
