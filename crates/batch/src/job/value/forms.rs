//! Values that have a short form and a full one. The errors of a form that was chosen are kept.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{
        Error, IntoDeserializer as _, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

/// Reads a text, which `of_text` completes, or the whole object.
pub(super) fn text_or_map<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    of_text: impl Fn(String) -> T,
) -> Result<T, D::Error> {
    let none: Option<fn(Vec<String>) -> T> = None;
    deserializer.deserialize_any(Forms { of_text, of_list: none })
}

/// As [`text_or_map`], or a list of texts, which `of_list` completes.
pub(super) fn text_list_or_map<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    of_text: impl Fn(String) -> T,
    of_list: impl Fn(Vec<String>) -> T,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Forms { of_text, of_list: Some(of_list) })
}

/// Reads a list of values, or one value.
pub(super) fn one_or_more<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_any(OneOrMore(PhantomData))
}

/// Reads a value from its text, or from a number.
pub(super) fn parsed<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Parsed(PhantomData))
}

struct Forms<F, L> {
    of_text: F,
    of_list: Option<L>,
}

impl<'de, T, F, L> Visitor<'de> for Forms<F, L>
where
    T: Deserialize<'de>,
    F: Fn(String) -> T,
    L: Fn(Vec<String>) -> T,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or an object")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok((self.of_text)(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        let Some(of_list) = self.of_list else {
            return Err(A::Error::custom("a list is neither a text nor an object"));
        };
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(of_list)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members))
    }
}

struct OneOrMore<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMore<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        T::deserialize(text.into_deserializer()).map(|value| vec![value])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Vec<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Vec<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(|value| vec![value])
    }
}

struct Parsed<T>(PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for Parsed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}
