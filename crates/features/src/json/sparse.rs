//! Sparse lists: `{"ids": [17, 23], "weights": [0.5, 1]}`, or with `names` in place of ids.

use std::marker::PhantomData;

use outrigger_core::Reason;
use outrigger_proto::outrigger::v1::SparseList;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::list::Element;
use crate::metadata::MAX_LENGTH;

/// The keys of a sparse list.
const KEYS: [&str; 3] = ["ids", "weights", "names"];

/// The values of one key, all of one type.
struct Items<T> {
    values: Vec<T>,
    /// The number of values sent.
    length: usize,
    /// The JSON type of the first value of another type.
    wrong: Option<&'static str>,
}

/// A value of a sparse list.
trait Item: Sized {
    const EXPECTED: &str;

    /// `None` for a value of another type.
    fn of(element: Element) -> Option<Self>;
}

impl Item for u64 {
    const EXPECTED: &str = "ids, whole numbers from 0 on";

    fn of(element: Element) -> Option<Self> {
        match element {
            Element::Integer(id) => Self::try_from(id).ok(),
            Element::Large(id) => Some(id),
            _ => None,
        }
    }
}

impl Item for f32 {
    const EXPECTED: &str = "weights that fit float32";

    fn of(element: Element) -> Option<Self> {
        let weight = match element {
            Element::Integer(weight) => weight as Self,
            Element::Large(weight) => weight as Self,
            Element::Real(weight) => weight as Self,
            _ => return None,
        };
        weight.is_finite().then_some(weight)
    }
}

impl Item for String {
    const EXPECTED: &str = "names, which are strings";

    fn of(element: Element) -> Option<Self> {
        match element {
            Element::Text(name) => Some(name),
            _ => None,
        }
    }
}

/// A refused list: the reason and the message.
pub(super) type Refused = (Reason, String);

/// Reads the members of a sparse list.
///
/// # Errors
/// The outer one: the text is no JSON. The inner one: it is no sparse list.
pub(super) fn read<'de, A: MapAccess<'de>>(
    mut members: A,
) -> Result<Result<SparseList, Refused>, A::Error> {
    let (mut list, mut given) = (SparseList::default(), [false; KEYS.len()]);
    while let Some(key) = members.next_key::<String>()? {
        let Some(index) = KEYS.iter().position(|known| *known == key) else {
            let message =
                format!("unknown key {key:?} of a sparse list; known are {}", KEYS.join(", "));
            return Ok(Err((Reason::RequestMalformed, message)));
        };
        if std::mem::replace(&mut given[index], true) {
            return Ok(Err((Reason::RequestMalformed, format!("{key} is given twice"))));
        }
        let taken = match index {
            0 => members.next_value::<Items<_>>()?.put(&mut list.ids),
            1 => members.next_value::<Items<_>>()?.put(&mut list.weights),
            _ => members.next_value::<Items<_>>()?.put(&mut list.names),
        };
        if let Err(refused) = taken {
            return Ok(Err(refused));
        }
    }
    Ok(Ok(list))
}

impl<T: Item> Items<T> {
    fn put(self, to: &mut Vec<T>) -> Result<(), Refused> {
        if let Some(found) = self.wrong {
            let message = format!("expected {}, found {found}", T::EXPECTED);
            return Err((Reason::FeatureType, message));
        }
        if self.length > MAX_LENGTH {
            let message = format!("expected at most {MAX_LENGTH} values, found {}", self.length);
            return Err((Reason::FeatureLength, message));
        }
        *to = self.values;
        Ok(())
    }
}

impl<'de, T: Item> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(ItemsVisitor(PhantomData))
    }
}

struct ItemsVisitor<T>(PhantomData<T>);

impl<T> ItemsVisitor<T> {
    fn wrong<E>(self, found: &'static str) -> Result<Items<T>, E> {
        Ok(Items { values: Vec::new(), length: 0, wrong: Some(found) })
    }
}

impl<'de, T: Item> Visitor<'de> for ItemsVisitor<T> {
    type Value = Items<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_unit<E: Error>(self) -> Result<Items<T>, E> {
        self.wrong("null")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Items<T>, E> {
        self.wrong("true or false")
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Items<T>, E> {
        self.wrong("a number")
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Items<T>, E> {
        self.wrong("a number")
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Items<T>, E> {
        self.wrong("a number")
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Items<T>, E> {
        self.wrong("a string")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Items<T>, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        self.wrong("an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Items<T>, A::Error> {
        let mut all = Items { values: Vec::new(), length: 0, wrong: None };
        while let Some(element) = items.next_element::<Element>()? {
            all.length += 1;
            let kind = element.kind();
            match T::of(element) {
                Some(value) if all.length <= MAX_LENGTH => all.values.push(value),
                Some(_) => {}
                None => all.wrong = all.wrong.or(Some(kind)),
            }
        }
        Ok(all)
    }
}
