//! A user given as a nested object: the path to a leaf, joined by dots, is its
//! feature's name; a list is a vector; null is absence.

use std::{collections::HashMap, sync::Arc};

use prost_types::{Struct, value::Kind};

use super::{Value, value::scalar_of, view::Unknown};

/// Puts an object's leaves into a row. Nesting is bounded by the decoder.
pub(super) fn read<'a>(
    object: &'a Struct,
    names: &HashMap<Arc<str>, usize>,
    row: &mut [Option<Value<'a>>],
    unknown: &mut Unknown,
) {
    descend(object, &mut String::new(), &mut |path, value| match names.get(path) {
        Some(&slot) => row[slot] = Some(value),
        None => unknown.add(path, 1),
    });
}

fn descend<'a>(object: &'a Struct, path: &mut String, leaf: &mut impl FnMut(&str, Value<'a>)) {
    for (key, value) in &object.fields {
        let parent = path.len();
        if parent > 0 {
            path.push('.');
        }
        path.push_str(key);
        match &value.kind {
            None | Some(Kind::NullValue(_)) => {}
            Some(Kind::StructValue(object)) => descend(object, path, leaf),
            Some(Kind::ListValue(list)) => leaf(path, Value::List(&list.values)),
            Some(_) => leaf(path, Value::One(scalar_of(value))),
        }
        path.truncate(parent);
    }
}
