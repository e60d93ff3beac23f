//! JSON values that carry their path, so that every error can name it.

mod strict;

use serde_json::{Map, Value};

pub(crate) use strict::{Small, parse, twice};

type Result<T> = std::result::Result<T, Wrong>;

/// An error in a value, with the value's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) path: String,
    pub(crate) message: String,
}

/// A value with its path.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    pub(crate) path: String,
    pub(crate) value: &'a Value,
}

/// An object with its path.
#[derive(Debug, Clone)]
pub(crate) struct Object<'a> {
    pub(crate) path: String,
    pub(crate) map: &'a Map<String, Value>,
}

impl<'a> Node<'a> {
    pub(crate) fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> Wrong {
        Wrong { path: self.path.clone(), message: message.into() }
    }

    pub(crate) fn expected(&self, what: &str) -> Wrong {
        self.error(format!("expected {what}, found {}", kind(self.value)))
    }

    pub(crate) fn object(&self) -> Result<Object<'a>> {
        let map = self.value.as_object().ok_or_else(|| self.expected("an object"))?;
        Ok(Object { path: self.path.clone(), map })
    }

    pub(crate) fn array(&self) -> Result<Vec<Node<'a>>> {
        let values = self.value.as_array().ok_or_else(|| self.expected("an array"))?;
        let node = |(index, value)| Node { path: format!("{}[{index}]", self.path), value };
        Ok(values.iter().enumerate().map(node).collect())
    }

    pub(crate) fn filled_array(&self, when_empty: &str) -> Result<Vec<Node<'a>>> {
        let nodes = self.array()?;
        if nodes.is_empty() { Err(self.error(when_empty)) } else { Ok(nodes) }
    }

    pub(crate) fn text(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    /// A string that is not empty.
    pub(crate) fn name(&self) -> Result<&'a str> {
        let text = self.text()?;
        if text.is_empty() { Err(self.error("must not be empty")) } else { Ok(text) }
    }

    pub(crate) fn flag(&self) -> Result<bool> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    /// A whole number, however it is written (`3` or `3.0`).
    pub(crate) fn integer(&self) -> Result<i64> {
        let Value::Number(number) = self.value else {
            return Err(self.expected("a whole number"));
        };
        let whole = || number.as_f64().and_then(crate::numbers::exact_integer);
        number.as_i64().or_else(whole).ok_or_else(|| {
            self.error(format!("expected a whole number of 64 bits, found {number}"))
        })
    }

    /// Reads a word that must be one of `choices`; returns the choice's value.
    pub(crate) fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T> {
        let text = self.text()?;
        let found = choices.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
            self.error(format!("expected {}, found {text:?}", words.join(" or ")))
        })
    }
}

impl<'a> Object<'a> {
    /// Refuses every key that is not in `keys`.
    pub(crate) fn only(&self, keys: &[&str]) -> Result<()> {
        match self.map.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(key) => Err(self.at(key, &format!("unknown key; known are {}", keys.join(", ")))),
            None => Ok(()),
        }
    }

    pub(crate) fn optional(&self, key: &str) -> Option<Node<'a>> {
        self.map.get(key).map(|value| Node { path: self.path_of(key), value })
    }

    pub(crate) fn required(&self, key: &str) -> Result<Node<'a>> {
        self.optional(key).ok_or_else(|| self.at(key, "is required"))
    }

    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        self.optional(key).map_or(Ok(default), |node| node.flag())
    }

    /// An error at one of this object's keys.
    pub(crate) fn at(&self, key: &str, message: &str) -> Wrong {
        Wrong { path: self.path_of(key), message: message.to_owned() }
    }

    /// An error about the object as a whole.
    pub(crate) fn error(&self, message: impl Into<String>) -> Wrong {
        Wrong { path: self.path.clone(), message: message.into() }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// The JSON type of a value, with its article.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
