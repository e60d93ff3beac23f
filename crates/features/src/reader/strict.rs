//! A JSON parser that refuses repeated keys: a repeated key is ambiguous.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The most values of a [`Small`].
const FEW: usize = 1000;

/// Parses JSON, which may begin with a byte order mark; a repeated key within an object is an error.
pub(crate) fn parse(json: &[u8]) -> Result<Value, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(outrigger_core::without_mark(json));
    let value = Strict { left: &mut { usize::MAX } }.deserialize(&mut json)?;
    json.end()?;
    Ok(value)
}

/// A value with at most `FEW` values in it. Larger ones are an error, so that a body
/// cannot make the parser use many times its own size in memory.
#[derive(Default)]
pub(crate) struct Small(pub(crate) Value);

impl<'de> Deserialize<'de> for Small {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Strict { left: &mut { FEW } }.deserialize(deserializer).map(Self)
    }
}

/// Deserializes a value while the number of values stays within the limit.
struct Strict<'a> {
    left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let Some(left) = self.left.checked_sub(1) else {
            return Err(D::Error::custom(format_args!("more than {FEW} values")));
        };
        *self.left = left;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        let number = Number::from_f64(number);
        number.map(Value::Number).ok_or_else(|| E::custom("a number too large for 64 bits"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(Strict { left: self.left })? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = pairs.next_key::<String>()? {
            let value = pairs.next_value_seed(Strict { left: self.left })?;
            if object.contains_key(&key) {
                return Err(twice(&key));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// The error for a key that an object has more than once.
pub(crate) fn twice<E: Error>(key: &str) -> E {
    E::custom(format_args!("the key {key:?} stands here twice"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_reads_as_ever() {
        let text =
            r#" {"a": [null, true, -1, 18446744073709551615, 0.1, -0.0, "\u00e4"], "b": {}} "#;
        let expected: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(parse(text.as_bytes()).expect("JSON"), expected);
        for bad in ["", "{", "[1,]", "{} {}", "1e999", r#"{"a" 1}"#] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn a_key_may_stand_only_once_in_an_object() {
        assert!(parse(br#"[{"a": 1}, {"a": {"a": 1}}]"#).is_ok());
        let error = parse(b"{\"a\": 1,\n \"a\": 1}").expect_err("twice");
        assert_eq!(error.to_string(), "the key \"a\" stands here twice at line 2 column 8");
    }
    #[test]
    fn a_small_value_has_few_others_in_it() {
        let many = |count: usize| serde_json::from_str::<Small>(&json!(vec![0; count]).to_string());
        assert_eq!(many(FEW - 1).expect("few").0, json!(vec![0; FEW - 1]));
        let error = many(FEW).err().expect("too many");
        assert!(error.to_string().starts_with("more than 1000 values"), "{error}");
        assert!(serde_json::from_str::<Small>(&"{\"a\":[".repeat(2000)).is_err());
    }
}
