//! Reads the document of a request: the values of its rows are passed to sinks as they come.

use std::{borrow::Cow, fmt, marker::PhantomData};

use outrigger_core::Failure;
use serde::{
    Deserialize,
    de::{
        DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected,
        Visitor,
    },
};

use crate::{Input, invalid, request::Options};

/// Takes the values of an input's rows in their order.
pub(super) trait Sink {
    fn id(&mut self, id: u64);
    fn score(&mut self, score: f32);
    /// Ends the current row, which has so many ids and scores.
    fn end_row(&mut self, ids: usize, scores: usize) -> Result<(), Failure>;
}

/// The parts of a document that are no rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) options: Options,
    /// True for each input that the document has.
    pub(super) has: [bool; Input::COUNT],
}

/// Reads a document; the rows of each input go to its sink.
///
/// # Errors
/// `REQUEST_MALFORMED`, and those of the sinks.
pub(super) fn read<S: Sink>(
    document: &[u8],
    sinks: &mut [S; Input::COUNT],
) -> Result<Read, Failure> {
    let (mut read, mut refused) = (Read::default(), None);
    let document = quoted(document);
    let mut reader = serde_json::Deserializer::from_slice(&document);
    let fields = Document { sinks, read: &mut read, refused: &mut refused };
    let result = Object(fields).deserialize(&mut reader).and_then(|()| reader.end());
    match result {
        Ok(()) => Ok(read),
        Err(error) => {
            let unreadable = || invalid("body", &format!("cannot be read: {error}"));
            Err(refused.unwrap_or_else(unreadable))
        }
    }
}

/// A document in whose scores bare `NaN`, `Inf` and `Infinity`, which XGBoost Serving reads, are
/// strings.
fn quoted(document: &[u8]) -> Cow<'_, [u8]> {
    // No other text has these capitals outside of strings.
    if !document.iter().any(|byte| matches!(byte, b'N' | b'I')) {
        return Cow::Borrowed(document);
    }
    let mut all = Vec::with_capacity(document.len() + 64);
    let mut rest = document;
    let mut is_string = false;
    while let Some((first, others)) = rest.split_first() {
        let word = match first {
            b'N' | b'I' | b'-' if !is_string => BARE.iter().find(|word| rest.starts_with(word)),
            _ => None,
        };
        if let Some(word) = word {
            all.extend([&b"\""[..], word, b"\""].concat());
            rest = &rest[word.len()..];
            continue;
        }
        all.push(*first);
        rest = others;
        match (first, rest.split_first()) {
            (b'"', _) => is_string = !is_string,
            (b'\\', Some((escaped, others))) if is_string => {
                all.push(*escaped);
                rest = others;
            }
            _ => {}
        }
    }
    Cow::Owned(all)
}

/// The bare scores, the longer ones first.
const BARE: [&[u8]; 5] = [b"NaN", b"Infinity", b"-Infinity", b"Inf", b"-Inf"];

/// A score: a number, or one of [`BARE`].
struct Score(f32);

impl<'de> Deserialize<'de> for Score {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScoreVisitor)
    }
}

struct ScoreVisitor;

impl Visitor<'_> for ScoreVisitor {
    type Value = Score;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    /// A number beyond those of float32 becomes infinite, which is refused later.
    fn visit_f64<E>(self, score: f64) -> Result<Score, E> {
        Ok(Score(score as f32))
    }

    fn visit_u64<E>(self, score: u64) -> Result<Score, E> {
        Ok(Score(score as f32))
    }

    fn visit_i64<E>(self, score: i64) -> Result<Score, E> {
        Ok(Score(score as f32))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Score, E> {
        match text {
            "NaN" => Ok(Score(f32::NAN)),
            "Inf" | "Infinity" => Ok(Score(f32::INFINITY)),
            "-Inf" | "-Infinity" => Ok(Score(f32::NEG_INFINITY)),
            _ => Err(E::invalid_type(Unexpected::Str(text), &self)),
        }
    }
}

/// The keys of all objects.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    XgboostFeatures,
    FmFeatures,
    OptionMask,
    NtreeLimit,
    FeatureScore,
    Id,
    Score,
    #[serde(other)]
    Other,
}

/// The fields of an object.
trait Fields {
    /// The object in an error message.
    const NAME: &'static str;

    /// Reads the value of `key`.
    fn read<'de, A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error>;
}

/// Reads an object into its fields.
struct Object<F>(F);

impl<'de, F: Fields> DeserializeSeed<'de> for Object<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: Fields> Visitor<'de> for Object<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(F::NAME)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            self.0.read(key, &mut map)?;
        }
        Ok(())
    }
}

/// The whole document.
struct Document<'s, S> {
    sinks: &'s mut [S; Input::COUNT],
    read: &'s mut Read,
    refused: &'s mut Option<Failure>,
}

impl<S: Sink> Document<'_, S> {
    fn rows<'de, A: MapAccess<'de>>(&mut self, input: Input, map: &mut A) -> Result<(), A::Error> {
        let at = input as usize;
        if std::mem::replace(&mut self.read.has[at], true) {
            return Err(A::Error::duplicate_field(input.name()));
        }
        map.next_value_seed(Rows { sink: &mut self.sinks[at], refused: &mut *self.refused })
    }
}

impl<S: Sink> Fields for Document<'_, S> {
    const NAME: &'static str = "an object with xgboost_features";

    fn read<'de, A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error> {
        match key {
            Key::XgboostFeatures => self.rows(Input::Trees, map)?,
            Key::FmFeatures => self.rows(Input::Machine, map)?,
            Key::OptionMask => self.read.options.option_mask = map.next_value()?,
            Key::NtreeLimit => self.read.options.ntree_limit = map.next_value()?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// Reads a list of rows.
struct Rows<'s, S> {
    sink: &'s mut S,
    refused: &'s mut Option<Failure>,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Rows<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Rows<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        let Self { sink, refused } = self;
        loop {
            let mut row = Row { sink: &mut *sink, lengths: None };
            if rows.next_element_seed(Object(&mut row))?.is_none() {
                return Ok(());
            }
            let Some(Lengths { ids, scores }) = row.lengths else {
                return Err(A::Error::missing_field("feature_score"));
            };
            if let Err(failure) = sink.end_row(ids, scores) {
                *refused = Some(failure);
                return Err(A::Error::custom("a row was refused"));
            }
        }
    }
}

/// The numbers of ids and scores of a row.
#[derive(Debug, Default, Clone, Copy)]
struct Lengths {
    ids: usize,
    scores: usize,
}

/// A row: `{"feature_score": {"id": [7], "score": [0.5]}}`.
struct Row<'s, S> {
    sink: &'s mut S,
    /// Those of its `feature_score`, if it has one.
    lengths: Option<Lengths>,
}

impl<S: Sink> Fields for &mut Row<'_, S> {
    const NAME: &'static str = "an object with feature_score";

    fn read<'de, A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error> {
        let Row { sink, lengths } = &mut **self;
        match key {
            Key::FeatureScore => {
                let lengths = lengths.get_or_insert_default();
                map.next_value_seed(Object(FeatureScore { sink: &mut **sink, lengths }))
            }
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

/// The values of a row: `{"id": [7], "score": [0.5]}`.
struct FeatureScore<'s, S> {
    sink: &'s mut S,
    lengths: &'s mut Lengths,
}

impl<S: Sink> Fields for FeatureScore<'_, S> {
    const NAME: &'static str = "an object with id and score";

    fn read<'de, A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error> {
        let Self { sink, lengths } = self;
        match key {
            Key::Id => lengths.ids += map.next_value_seed(each(|id: u64| sink.id(id)))?,
            Key::Score => {
                let score = |Score(score)| sink.score(score);
                lengths.scores += map.next_value_seed(each(score))?;
            }
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// Calls a function with each element of a list, and returns their number.
struct Each<T, F> {
    visit: F,
    element: PhantomData<T>,
}

fn each<T, F: FnMut(T)>(visit: F) -> Each<T, F> {
    Each { visit, element: PhantomData }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T)> DeserializeSeed<'de> for Each<T, F> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T)> Visitor<'de> for Each<T, F> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while let Some(element) = list.next_element()? {
            (self.visit)(element);
            count += 1;
        }
        Ok(count)
    }
}
