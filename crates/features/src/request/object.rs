//! A user given as a nested object: the path to a leaf, joined by dots, is its
//! feature's name; a list is a vector; null is absence.

use std::{collections::HashMap, sync::Arc};

use outrigger_core::Failure;
use prost_types::{Struct, value::Kind};

use super::{Place, Value, value::scalar_of, view::Unknown};

/// Puts an object's leaves into a row. Nesting is bounded by the decoder.
///
/// # Errors
/// REQUEST_MALFORMED for a feature that is there by two ways, as `{"a.b": 1}`
/// and as `{"a": {"b": 2}}`: a map has no order that could decide.
pub(super) fn read<'a>(
    object: &'a Struct,
    names: &HashMap<Arc<str>, usize>,
    row: &mut [Option<Value<'a>>],
    unknown: &mut Unknown,
    place: &Place,
) -> Result<(), Failure> {
    let mut put = |path: &str, value| {
        match names.get(path) {
            Some(&slot) if row[slot].is_some() => {
                return Err(place.malformed(format!("user[{path:?}]"), "given twice"));
            }
            Some(&slot) => row[slot] = Some(value),
            None => unknown.add(path, 1),
        }
        Ok(())
    };
    descend(object, &mut String::new(), &mut put)
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
