//! A user given as a nested object: the path to a leaf, joined by dots, is its
//! feature's name; a list is a vector; null is absence.

use outrigger_core::Failure;
use prost_types::{Struct, value::Kind};

use super::{Place, Value, value::scalar_of};

/// Calls `leaf` with the path and value of every leaf, in the order of keys.
/// Nesting is bounded by the decoder.
///
/// # Errors
/// The first one of `leaf`.
pub(crate) fn leaves<'a>(
    object: &'a Struct,
    leaf: &mut impl FnMut(&str, Value<'a>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    descend(object, &mut String::new(), leaf)
}

/// The failure of a feature that is there by two ways, as `{"a.b": 1}` and as
/// `{"a": {"b": 2}}`: a map has no order that could decide.
pub(crate) fn given_twice(path: &str, place: &Place) -> Failure {
    place.malformed(format!("user[{path:?}]"), "given twice")
}

fn descend<'a>(
    object: &'a Struct,
    path: &mut String,
    leaf: &mut impl FnMut(&str, Value<'a>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for (key, value) in &object.fields {
        let parent = path.len();
        if parent > 0 {
            path.push('.');
        }
        path.push_str(key);
        match &value.kind {
            None | Some(Kind::NullValue(_)) => {}
            Some(Kind::StructValue(object)) => descend(object, path, leaf)?,
            Some(Kind::ListValue(list)) => leaf(path, Value::List(&list.values))?,
            Some(_) => leaf(path, Value::One(scalar_of(value)))?,
        }
        path.truncate(parent);
    }
    Ok(())
}
