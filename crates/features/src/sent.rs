//! The feature values that a request has sent, decoded from its tensors.

use outrigger_core::{Content, DType, Failure, Tensor};
use outrigger_proto::outrigger::v1::ValueOrigin;

use crate::{
    arrived::Arrived,
    call::Call,
    limits::Limits,
    metadata::{Encoding, Entity, Feature, Size, Words},
    plan::Plan,
};

/// The position of a scalar feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    input: usize,
    /// The feature's position in the input.
    column: usize,
    /// The element's position in a row.
    offset: usize,
}

/// A value that a request sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sent<'p> {
    /// The request did not send the value.
    Missing,
    /// The word is not in the vocabulary.
    OutOfVocabulary,
    /// A number; flags become 0 or 1.
    Number(f64),
    /// A word of the vocabulary.
    Word(&'p str),
}

impl Plan {
    /// The position of the feature of this name; `None` if it does not exist, or its
    /// values are neither numbers nor words of a vocabulary.
    pub fn slot(&self, entity: Entity, feature: &str) -> Option<Slot> {
        let inputs = self.metadata().inputs.iter().enumerate();
        for (input, found) in inputs {
            let mut offset = 0;
            for (column, candidate) in found.features.iter().enumerate() {
                if candidate.entity == entity && *candidate.name == *feature {
                    let readable = is_readable(candidate, found.dtype);
                    return readable.then_some(Slot { input, column, offset });
                }
                offset += candidate.length;
            }
        }
        None
    }

    /// Whether the values of a feature are words.
    pub fn has_words(&self, slot: Slot) -> bool {
        matches!(self.encoding(slot), Encoding::Vocabulary { words: Words::Texts(_), .. })
    }

    /// The values that a request of one user sent for these features. For features of
    /// treatments, they come from one treatment, which `random` selects. `None` if the request has
    /// no treatments, or rows or tensors in place of features.
    ///
    /// # Errors
    /// As [`Plan::pack`].
    pub fn sent(
        &self,
        request: &Arrived,
        slots: &[Slot],
        random: u64,
        limits: &Limits,
    ) -> Result<Option<Vec<Sent<'_>>>, Failure> {
        if matches!(request, Arrived::Rows(_) | Arrived::Tensors(_)) {
            return Ok(None);
        }
        let call = Call { traced: true, ..Call::new(limits) };
        let (packed, trace) = self.pack_arrived_traced(request, &call)?;
        let rows = u64::try_from(packed.treatments).unwrap_or(u64::MAX);
        let Some(drawn) = random.checked_rem(rows) else { return Ok(None) };
        let drawn = usize::try_from(drawn).unwrap_or_default();
        let read = |slot: &Slot| {
            let input = &self.metadata.inputs[slot.input];
            let row = if input.entity == Entity::User { 0 } else { drawn };
            let origin = trace.origins[slot.input][row * input.features.len() + slot.column];
            let tensor = &packed.tensors[slot.input];
            let element = element(tensor, row * input.width() + slot.offset);
            self.as_sent(*slot, origin, element)
        };
        Ok(Some(slots.iter().map(read).collect()))
    }

    fn encoding(&self, slot: Slot) -> &Encoding {
        &self.metadata().inputs[slot.input].features[slot.column].encoding
    }

    fn as_sent(&self, slot: Slot, origin: i32, element: f64) -> Sent<'_> {
        match ValueOrigin::try_from(origin) {
            Ok(ValueOrigin::Request) => {}
            Ok(ValueOrigin::OutOfVocabulary) => return Sent::OutOfVocabulary,
            _ => return Sent::Missing,
        }
        let Encoding::Vocabulary { words, .. } = self.encoding(slot) else {
            return Sent::Number(element);
        };
        let index = element as usize;
        match words {
            Words::Texts(words) => {
                words.get(index).map_or(Sent::OutOfVocabulary, |word| Sent::Word(word))
            }
            Words::Integers(words) => {
                words.get(index).map_or(Sent::OutOfVocabulary, |word| Sent::Number(*word as f64))
            }
        }
    }
}

fn is_readable(feature: &Feature, dtype: DType) -> bool {
    let hashed = matches!(feature.encoding, Encoding::HashBuckets(_));
    let scalar = feature.length == 1 && matches!(feature.size, Size::Exact | Size::Padded(_));
    scalar && !hashed && dtype != DType::String
}

/// An element of a tensor of numbers or flags.
fn element(tensor: &Tensor, at: usize) -> f64 {
    let (Content::Bytes(bytes), Some(size)) = (&tensor.content, tensor.dtype.size()) else {
        return f64::NAN;
    };
    let bytes = &bytes[at * size..(at + 1) * size];
    match tensor.dtype {
        DType::Float32 => f32::from_le_bytes(whole(bytes)).into(),
        DType::Float64 => f64::from_le_bytes(whole(bytes)),
        DType::Int32 => i32::from_le_bytes(whole(bytes)).into(),
        DType::Int64 => i64::from_le_bytes(whole(bytes)) as f64,
        DType::Bool => bytes[0].into(),
        _ => f64::NAN,
    }
}

fn whole<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("an element has the size of its type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{embedding, encoded, number, plan, request, text, user};

    fn arrived(request: &outrigger_proto::outrigger::v1::PredictRequest) -> Arrived {
        bytes::Bytes::copy_from_slice(encoded(request)).into()
    }

    #[test]
    fn values_are_read_as_they_were_sent() {
        let plan = plan();
        let slot = |entity, name| plan.slot(entity, name).expect("a single value");
        let slots = [
            slot(Entity::User, "recency_months"),
            slot(Entity::User, "channel"),
            slot(Entity::Treatment, "discount"),
            slot(Entity::Treatment, "days_live"),
        ];
        assert!(plan.has_words(slots[1]) && !plan.has_words(slots[0]));
        let sent = |user_features, random| {
            let request = outrigger_proto::outrigger::v1::PredictRequest {
                user: Some(user_features),
                ..request(&[0.25, 0.5])
            };
            let limits = Limits::default();
            plan.sent(&arrived(&request), &slots, random, &limits).expect("packs").expect("rows")
        };
        let known = user([
            ("recency_months", number(3.0)),
            ("channel", text("web")),
            ("embedding", embedding()),
        ]);
        let expected = [Sent::Number(3.0), Sent::Word("web"), Sent::Number(0.25), Sent::Missing];
        assert_eq!(sent(known, 4), expected);
        let unknown = user([("channel", text("letter")), ("embedding", embedding())]);
        let expected = [Sent::Missing, Sent::OutOfVocabulary, Sent::Number(0.5), Sent::Missing];
        assert_eq!(sent(unknown, 5), expected);
        let none = plan.sent(&arrived(&request(&[])), &slots, 0, &Limits::default());
        assert_eq!(none, Ok(None));
    }

    #[test]
    fn only_numbers_and_words_have_a_place() {
        let plan = plan();
        for (entity, name) in [
            (Entity::User, "embedding"),
            (Entity::User, "discount"),
            (Entity::Treatment, "recency_months"),
            (Entity::User, "nothing"),
        ] {
            assert_eq!(plan.slot(entity, name), None, "{name}");
        }
    }
}
