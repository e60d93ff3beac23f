//! Reads one entry of `outputs` in metadata.json.

use super::{Output, OutputKind, Role};
use crate::reader::{Object, Wrong};

const KINDS: [(&str, OutputKind); 2] = [
    (OutputKind::PerTreatment.as_str(), OutputKind::PerTreatment),
    (OutputKind::Single.as_str(), OutputKind::Single),
];

pub(super) fn read(object: &Object<'_>) -> Result<Output, Wrong> {
    object.only(&["tensor", "name", "kind", "role"])?;
    let tensor = object.required("tensor")?.name()?.into();
    let name = object.required("name")?.name()?.into();
    let kind = object.required("kind")?.one_of(&KINDS)?;
    let role = object.optional("role");
    let role = role.map(|node| node.one_of(&[("propensity", Role::Propensity)])).transpose()?;
    Ok(Output { tensor, name, kind, role })
}
