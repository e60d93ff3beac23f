//! Reads `uplift` in metadata.json.

use std::collections::BTreeMap;

use outrigger_core::{DType, Uplift};

use super::{Raw, feature::read_number};
use crate::reader::{Node, Wrong};

/// The values of a control, or the names of arms.
pub(super) fn read(node: &Node<'_>) -> Result<Uplift, Wrong> {
    let object = node.object()?;
    object.only(&["control", "arms"])?;
    match (object.optional("control"), object.optional("arms")) {
        (Some(control), None) => read_control(&control).map(Uplift::Control),
        (None, Some(arms)) => read_arms(&arms).map(Uplift::Arms),
        (Some(_), Some(arms)) => Err(arms.error("control and arms exclude each other")),
        (None, None) => Err(object.error("one of control and arms is needed")),
    }
}

fn read_control(node: &Node<'_>) -> Result<BTreeMap<String, Option<f64>>, Wrong> {
    let object = node.object()?;
    if object.map.is_empty() {
        return Err(node.error("at least one column is needed"));
    }
    let names = object.map.keys();
    names.map(|name| Ok((name.clone(), read_value(&object.required(name)?)?))).collect()
}

/// A number, or null for a missing value.
fn read_value(node: &Node<'_>) -> Result<Option<f64>, Wrong> {
    if node.value.is_null() {
        return Ok(None);
    }
    Ok(match read_number(node, DType::Float32)? {
        Raw::Integer(value) => Some(value as f64),
        Raw::Real(value) => Some(value),
        _ => return Err(node.error("expected a number or null")),
    })
}

fn read_arms(node: &Node<'_>) -> Result<Vec<String>, Wrong> {
    let names = node.filled_array("at least one arm is needed")?;
    names.iter().map(|name| Ok(name.name()?.to_owned())).collect()
}
