//! Reads one entry of `outputs` in metadata.json.

use super::{Output, OutputKind, Role, feature::read_length};
use crate::reader::{Node, Object, Wrong};

const KINDS: [(&str, OutputKind); 2] = [
    (OutputKind::PerTreatment.as_str(), OutputKind::PerTreatment),
    (OutputKind::Single.as_str(), OutputKind::Single),
];

pub(super) fn read(object: &Object<'_>) -> Result<Output, Wrong> {
    object.only(&["tensor", "name", "kind", "width", "score", "role"])?;
    let tensor = object.required("tensor")?.name()?.into();
    let name = object.required("name")?.name()?.into();
    let kind = object.required("kind")?.one_of(&KINDS)?;
    let width = object.optional("width").map_or(Ok(1), |node| read_length(&node))?;
    let score_column = read_score_column(object, width)?;
    let role = object.optional("role").map(|node| read_role(&node, width)).transpose()?;
    Ok(Output { tensor, name, kind, width, score_column, role })
}

/// The column that is the score. An output with several must name it.
fn read_score_column(object: &Object<'_>, width: usize) -> Result<usize, Wrong> {
    let Some(node) = object.optional("score") else {
        let message = "is required: an output of several columns names the one that is the score";
        return if width == 1 { Ok(0) } else { Err(object.at("score", message)) };
    };
    let score = node.object()?;
    score.only(&["column"])?;
    let node = score.required("column")?;
    let column = node.integer()?;
    let valid = usize::try_from(column).ok().filter(|column| *column < width);
    valid.ok_or_else(|| node.error(format!("must be 0 to {}, is {column}", width - 1)))
}

fn read_role(node: &Node<'_>, width: usize) -> Result<Role, Wrong> {
    let role = node.one_of(&[("propensity", Role::Propensity)])?;
    let message = format!("a propensity is one number, this output has a width of {width}");
    if width == 1 { Ok(role) } else { Err(node.error(message)) }
}
