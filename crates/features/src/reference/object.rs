//! A user sent as a nested object, decoded.

use outrigger_core::Failure;
use prost_types::{Struct, value::Kind};

use super::plain::{Plain, scalar_of};

/// Calls `leaf` with the path and value of every leaf, in the order of keys.
/// Nesting is bounded by the decoder.
///
/// # Errors
/// The first error that `leaf` returns.
pub(super) fn leaves<'a>(
    object: &'a Struct,
    leaf: &mut impl FnMut(&str, Plain<'a>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    descend(object, &mut String::new(), leaf)
}

fn descend<'a>(
    object: &'a Struct,
    path: &mut String,
    leaf: &mut impl FnMut(&str, Plain<'a>) -> Result<(), Failure>,
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
            Some(Kind::ListValue(list)) => {
                leaf(path, Plain::Values(&list.values))?;
            }
            Some(_) => leaf(path, Plain::One(scalar_of(value)))?,
        }
        path.truncate(parent);
    }
    Ok(())
}
