//! A user given as a nested object: the path to a leaf, joined by dots, is its
//! feature's name; a list is a vector; null is absence.

use outrigger_core::Failure;
use prost_types::{Struct, value::Kind};

use super::{Place, Value, value::scalar_of};

/// Calls `leaf` with the path and value of every leaf, in the order of keys. Of a path
/// of more than `longest` bytes it gets the beginning: one byte more than that.
/// Nesting is bounded by the decoder.
///
/// # Errors
/// The first one of `leaf`.
pub(crate) fn leaves<'a>(
    object: &'a Struct,
    longest: usize,
    leaf: &mut impl FnMut(&[u8], Value<'a>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    descend(object, &mut Path { bytes: Vec::new(), longest }, leaf)
}

/// The failure of a feature that is there by two ways, as `{"a.b": 1}` and as
/// `{"a": {"b": 2}}`: a map has no order that could decide.
pub(crate) fn given_twice(path: &[u8], place: &Place) -> Failure {
    let path = String::from_utf8_lossy(path);
    place.malformed(format!("user[{path:?}]"), "given twice")
}

/// The way to a leaf, as far as it is of interest: an object may have very many leaves,
/// and its own name may be very long.
struct Path {
    bytes: Vec<u8>,
    longest: usize,
}

impl Path {
    fn push(&mut self, key: &str) {
        let dot = if self.bytes.is_empty() { "" } else { "." };
        for part in [dot, key] {
            let room = (self.longest + 1).saturating_sub(self.bytes.len());
            self.bytes.extend_from_slice(&part.as_bytes()[..part.len().min(room)]);
        }
    }
}

fn descend<'a>(
    object: &'a Struct,
    path: &mut Path,
    leaf: &mut impl FnMut(&[u8], Value<'a>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for (key, value) in &object.fields {
        let parent = path.bytes.len();
        path.push(key);
        match &value.kind {
            None | Some(Kind::NullValue(_)) => {}
            Some(Kind::StructValue(object)) => descend(object, path, leaf)?,
            Some(Kind::ListValue(list)) => leaf(&path.bytes, Value::List(&list.values))?,
            Some(_) => leaf(&path.bytes, Value::One(scalar_of(value)))?,
        }
        path.bytes.truncate(parent);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{KEY: {KEY: …}}`, and a flag at the end.
    fn nested(keys: &[&str]) -> prost_types::Value {
        let Some((key, inner)) = keys.split_first() else { return true.into() };
        let fields = [((*key).to_owned(), nested(inner))].into();
        Kind::StructValue(Struct { fields }).into()
    }

    fn paths(keys: &[&str], longest: usize) -> Vec<String> {
        let Some(Kind::StructValue(object)) = nested(keys).kind else { panic!("no object") };
        let mut paths = Vec::new();
        let mut leaf = |path: &[u8], _: Value<'_>| {
            paths.push(String::from_utf8_lossy(path).into_owned());
            Ok(())
        };
        leaves(&object, longest, &mut leaf).expect("no leaf is refused");
        paths
    }

    #[test]
    fn no_more_of_a_path_is_told_than_that_it_is_too_long() {
        for (keys, longest, told) in [
            (&["a", "b", "c"][..], 5, "a.b.c"),
            (&["a", "b", "cd"], 5, "a.b.cd"),
            (&["a", "b", "cdefgh"], 5, "a.b.cd"),
            (&["a", "b", "c", "d"], 5, "a.b.c."),
            (&["abcdefgh", "b", "c"], 5, "abcdef"),
            (&["", "a"], 5, "a"),
            (&["a"], 0, "a"),
            (&["ab", "c"], 0, "a"),
        ] {
            assert_eq!(paths(keys, longest), [told], "{keys:?}");
        }
    }
}
