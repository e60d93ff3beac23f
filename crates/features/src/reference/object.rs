//! A user sent as a nested object, decoded.

use outrigger_core::Failure;
use prost_types::{Struct, value::Kind};

use super::plain::{Plain, scalar_of};

/// Calls `leaf` with the path and value of every leaf, in the order of keys, and `inner` with the
/// path of every object. Nesting is bounded by the decoder.
///
/// # Errors
/// The first error that `leaf` or `inner` returns.
pub(super) fn leaves<'a>(
    object: &'a Struct,
    inner: &impl Fn(&str) -> Result<(), Failure>,
    leaf: &mut impl FnMut(&str, Plain<'a>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    descend(object, &mut String::new(), inner, leaf)
}

fn descend<'a>(
    object: &'a Struct,
    path: &mut String,
    inner: &impl Fn(&str) -> Result<(), Failure>,
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
            Some(Kind::StructValue(object)) => {
                inner(path)?;
                descend(object, path, inner, leaf)?;
            }
            Some(Kind::ListValue(list)) => {
                leaf(path, Plain::Values(&list.values))?;
            }
            Some(_) => leaf(path, Plain::One(scalar_of(value)))?,
        }
        path.truncate(parent);
    }
    Ok(())
}
