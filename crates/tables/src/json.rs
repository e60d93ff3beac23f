//! Values of JSON, read within a limit of memory: a text of a few bytes may take much more as a value.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::cell::{Cell, repeated};

/// The smallest number of values for which memory is allocated.
const LEAST: usize = 4;

impl Cell {
    /// Parses JSON that takes at most `most` bytes of memory as a value; a repeated name in an
    /// object is an error.
    ///
    /// # Errors
    /// The text is not JSON, or takes more memory.
    pub fn parse(json: &[u8], most: usize) -> Result<Self, String> {
        let left = Left::new(most);
        let mut text = serde_json::Deserializer::from_slice(json);
        let parsed = Json { most, left: &left }.deserialize(&mut text);
        let parsed = parsed.and_then(|cell| text.end().map(|()| cell));
        // A text has one line, so only the column of an error is of interest.
        parsed.map_err(|error| error.to_string().replace("line 1 column", "column"))
    }
}

/// The number of bytes that may still be taken.
type Left = std::cell::Cell<usize>;

/// Reads a value.
#[derive(Clone, Copy)]
struct Json<'a> {
    most: usize,
    left: &'a Left,
}

impl Json<'_> {
    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(bytes);
        let left = left.ok_or_else(|| {
            E::custom(format_args!("a row takes more than {} bytes of memory", self.most))
        })?;
        self.left.set(left);
        Ok(())
    }

    fn text<E: Error>(self, text: impl AsRef<str> + Into<String>) -> Result<Cell, E> {
        self.take(text.as_ref().len())?;
        Ok(Cell::Text(text.into()))
    }

    /// Appends an element. The memory of a list doubles when it is full.
    fn push<T, E: Error>(self, all: &mut Vec<T>, element: T) -> Result<(), E> {
        if all.len() == all.capacity() {
            let more = all.len().max(LEAST);
            self.take(more * size_of::<T>())?;
            all.reserve_exact(more);
        }
        all.push(element);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Json<'_> {
    type Value = Cell;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cell, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Json<'_> {
    type Value = Cell;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Cell, E> {
        Ok(Cell::Absent)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Cell, E> {
        Ok(Cell::Flag(flag))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Cell, E> {
        Ok(Cell::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Cell, E> {
        Ok(Cell::of_unsigned(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Cell, E> {
        Ok(Cell::Real(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cell, E> {
        self.text(text)
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Cell, E> {
        self.text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Cell, A::Error> {
        let mut cells = Vec::new();
        while let Some(cell) = items.next_element_seed(self)? {
            self.push(&mut cells, cell)?;
        }
        Ok(Cell::List(cells))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Cell, A::Error> {
        let mut cells = Vec::new();
        while let Some(name) = members.next_key::<String>()? {
            self.take(name.len())?;
            let cell = members.next_value_seed(self)?;
            self.push(&mut cells, (name, cell))?;
        }
        match repeated(cells.iter().map(|(name, _)| name.as_str())) {
            Some(name) => Err(A::Error::custom(format_args!("the key {name:?} stands here twice"))),
            None => Ok(Cell::Object(cells)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &[u8]) -> Result<Cell, String> {
        Cell::parse(json, 4096)
    }

    #[test]
    fn json_is_read_with_its_types() {
        let cell = parse(br#"{"a": [1, -2.5, "x", true, null], "b": 18446744073709551615}"#);
        let list = vec![
            Cell::Integer(1),
            Cell::Real(-2.5),
            Cell::Text("x".to_owned()),
            Cell::Flag(true),
            Cell::Absent,
        ];
        let object =
            vec![("a".to_owned(), Cell::List(list)), ("b".to_owned(), Cell::Unsigned(u64::MAX))];
        assert_eq!(cell, Ok(Cell::Object(object)));
    }

    #[test]
    fn a_repeated_key_and_deep_nesting_are_refused() {
        let error = parse(br#"{"a": {"b": 1, "b": 2}}"#).expect_err("a repeated key");
        assert!(error.starts_with("the key \"b\" stands here twice"), "{error}");
        assert!(!error.contains("line"), "{error}");
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
        assert!(parse(b"1 2").is_err());
    }

    #[test]
    fn a_value_takes_limited_memory() {
        let list = |count: usize, item: &str| format!("[{}]", vec![item; count].join(","));
        for (fits, item) in [(128, "1"), (24, "[1]"), (15, r#"{"a":1}"#), (40, r#""abcd""#)] {
            assert!(parse(list(fits, item).as_bytes()).is_ok(), "{fits} x {item}");
            let error = parse(list(fits * 2, item).as_bytes()).expect_err(item);
            assert!(error.starts_with("a row takes more than 4096 bytes of memory"), "{error}");
        }
        let error = parse(format!("\"{}\"", "x".repeat(5000)).as_bytes()).expect_err("too long");
        assert!(error.starts_with("a row takes more"), "{error}");
    }
}
