//! The values of a vector feature.

use std::fmt;

use outrigger_core::{DType, Reason};
use outrigger_proto::outrigger::v1::{IntegerList, NumberList, RealList, TextList, value::Kind};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::metadata::MAX_LENGTH;

/// One of the values.
pub(super) enum Element {
    Flag(bool),
    Integer(i64),
    /// A whole number above those.
    Large(u64),
    Real(f64),
    Text(String),
    /// A value that no list may contain, as its JSON type.
    Other(&'static str),
}

/// The values parsed so far, all of one type; limited to the maximum length of a feature.
#[derive(Default)]
pub(super) struct List {
    values: Values,
    length: usize,
    /// The JSON types of the first values, for an error message.
    types: Vec<&'static str>,
}

#[derive(Default)]
enum Values {
    #[default]
    None,
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Texts(Vec<String>),
    Flags(Vec<i64>),
    Mixed,
}

/// The number of types listed in a message.
const NAMED: usize = 3;

impl List {
    /// Appends a value.
    pub(super) fn push(&mut self, element: Element) {
        self.length += 1;
        if self.types.len() < NAMED {
            self.types.push(element.kind());
        }
        if self.length <= MAX_LENGTH {
            self.values = std::mem::take(&mut self.values).with(element);
        }
    }

    /// The values of a feature whose tensor has elements of `dtype`.
    ///
    /// # Errors
    /// A feature of that type cannot have these values.
    pub(super) fn kind(self, dtype: DType) -> Result<Kind, (Reason, String)> {
        if self.length > MAX_LENGTH {
            let message = format!("expected at most {MAX_LENGTH} values, found {}", self.length);
            return Err((Reason::FeatureLength, message));
        }
        Ok(match self.values {
            Values::None => Kind::Numbers(NumberList::default()),
            Values::Integers(values) => Kind::Integers(IntegerList { values }),
            Values::Reals(values) => Kind::Reals(RealList { values }),
            Values::Texts(values) => Kind::Texts(TextList { values }),
            Values::Flags(values) if dtype != DType::String => {
                Kind::Integers(IntegerList { values })
            }
            Values::Flags(_) => {
                let message = format!("expected {dtype} values, found flags");
                return Err((Reason::FeatureType, message));
            }
            Values::Mixed => {
                let types = self.types.join(", ");
                let message = format!("expected values of one type, found {types}, …");
                return Err((Reason::FeatureType, message));
            }
        })
    }
}

impl Values {
    /// Adds an element; whole numbers in a list with fractions become floats.
    fn with(self, element: Element) -> Self {
        let element = match element {
            Element::Large(value) => Element::Real(value as f64),
            element => element,
        };
        match (self, element) {
            (Self::None, Element::Integer(value)) => Self::Integers(vec![value]),
            (Self::None, Element::Real(value)) => Self::Reals(vec![value]),
            (Self::None, Element::Text(value)) => Self::Texts(vec![value]),
            (Self::None, Element::Flag(value)) => Self::Flags(vec![value.into()]),
            (Self::Integers(values), Element::Integer(value)) => Self::Integers(and(values, value)),
            (Self::Integers(values), Element::Real(value)) => {
                let values = values.into_iter().map(|value| value as f64).collect();
                Self::Reals(and(values, value))
            }
            (Self::Reals(values), Element::Integer(value)) => {
                Self::Reals(and(values, value as f64))
            }
            (Self::Reals(values), Element::Real(value)) => Self::Reals(and(values, value)),
            (Self::Texts(values), Element::Text(value)) => Self::Texts(and(values, value)),
            (Self::Flags(values), Element::Flag(value)) => Self::Flags(and(values, value.into())),
            _ => Self::Mixed,
        }
    }
}

fn and<T>(mut values: Vec<T>, value: T) -> Vec<T> {
    values.push(value);
    values
}

impl Element {
    /// Its JSON type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "true or false",
            Self::Integer(_) | Self::Large(_) | Self::Real(_) => "a number",
            Self::Text(_) => "a string",
            Self::Other(kind) => kind,
        }
    }
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Element, E> {
        Ok(Element::Other("null"))
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Element, E> {
        Ok(Element::Flag(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Element, E> {
        Ok(Element::Integer(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Element, E> {
        Ok(i64::try_from(number).map_or(Element::Large(number), Element::Integer))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Element, E> {
        Ok(Element::Real(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Element, E> {
        Ok(Element::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Element, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Element::Other("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Element, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Element::Other("an object"))
    }
}
