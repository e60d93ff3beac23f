//! Matches the columns of a file with the tensors of a model, before the first row.

use std::collections::{BTreeMap, BTreeSet};

use arrow_schema::{DataType as ArrowType, Schema};
use outrigger_oip::{DataType, metadata::TensorMetadata};
use outrigger_tables::{Kind, is_json, kind};

use super::{InputTensor, OutputColumn};
use crate::{Error, job::Source};

/// The input tensors of the model, with their columns. `described` are those of the host; where it
/// describes none, the job does.
///
/// # Errors
/// A tensor is unknown or not described, or a shape is not one of rows.
pub(crate) fn resolve_inputs(
    (described, optional): (&[TensorMetadata], &BTreeSet<String>),
    sources: &BTreeMap<String, Source>,
) -> Result<Vec<InputTensor>, Error> {
    let is_known = |name: &str| described.iter().any(|tensor| tensor.name == name);
    if !described.is_empty()
        && let Some(unknown) = sources.keys().find(|name| !is_known(name))
    {
        let known = names(described.iter().map(|tensor| &tensor.name));
        return Err(Error::usage(format!("the model has no input {unknown:?}; it has {known}")));
    }
    if described.is_empty() && sources.is_empty() {
        return Err(Error::usage(
            "the hosts do not describe the model's inputs: name them under inputs, each with \
             columns, datatype and shape",
        ));
    }
    let empty = Source::default();
    match described {
        [] => sources.iter().map(|(name, source)| undescribed(name, source)).collect(),
        _ => described
            .iter()
            .map(|tensor| input(tensor, sources.get(&tensor.name).unwrap_or(&empty), optional))
            .collect(),
    }
}

/// The inputs whose columns are there, which have values of their types. Optional ones that the job
/// does not name are left out if they have no column.
///
/// # Errors
/// A column is unknown or has a wrong type, an input is a member of objects, or no input is left.
pub(crate) fn present_inputs(
    mut inputs: Vec<InputTensor>,
    sources: &BTreeMap<String, Source>,
    schema: &Schema,
) -> Result<Vec<InputTensor>, Error> {
    let is_used = |InputTensor { name, is_optional, .. }: &InputTensor| {
        !is_optional || sources.contains_key(name) || schema.field_with_name(name).is_ok()
    };
    let mut unused = inputs.iter().filter(|input| !is_used(input)).map(|input| &*input.name);
    if let Some((name, column)) = unused.find_map(|name| within(name, schema)) {
        return Err(Error::usage(format!(
            "input {name}: the column {column:?} has objects, and an input has a column of its own"
        )));
    }
    inputs.retain(is_used);
    if inputs.is_empty() {
        let known = names(schema.fields().iter().map(|field| field.name()));
        return Err(Error::usage(format!(
            "the files have no column of an input of the model; they have {known}"
        )));
    }
    inputs.iter().try_for_each(|input| check_columns(input, schema))?;
    Ok(inputs)
}

/// Remarks about the columns that may be meant for an optional input without one: its name in another
/// case of letters, or the part of it before a dot.
pub(crate) fn remarks(
    inputs: &[InputTensor],
    sources: &BTreeMap<String, Source>,
    schema: &Schema,
) -> Vec<String> {
    let is_there = |name: &String| schema.field_with_name(name).is_ok();
    let is_taken = |name: &String| inputs.iter().any(|it| it.columns.contains(name));
    let unused = inputs.iter().map(|input| &input.name);
    let unused = unused.filter(|name| !is_there(name) && !sources.contains_key(*name));
    let remarks = unused.flat_map(|name| {
        let lower = name.to_lowercase();
        let may_be = move |column: &&String| {
            let parent = name.strip_prefix(column.as_str());
            column.to_lowercase() == lower || parent.is_some_and(|rest| rest.starts_with('.'))
        };
        let columns = schema.fields().iter().map(|field| field.name());
        columns.filter(may_be).map(move |column| (name, column))
    });
    let free = remarks.filter(|(_, column)| !is_taken(column));
    free.map(|(name, column)| {
        format!("the column {column:?} is no input; the input {name:?} has no column")
    })
    .collect()
}

/// An input whose name is that of a member of objects, with their column; `None` if it is none.
fn within<'a>(name: &'a str, schema: &Schema) -> Option<(&'a str, &'a str)> {
    let has_objects = |column: &&str| {
        let field = schema.field_with_name(column);
        field.is_ok_and(|it| is_json(it) || matches!(it.data_type(), ArrowType::Struct(_)))
    };
    let mut columns = name.match_indices('.').map(|(dot, _)| &name[..dot]);
    columns.find(has_objects).map(|column| (name, column))
}

pub(super) fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn columns(name: &str, source: &Source) -> Vec<String> {
    if source.columns.is_empty() { vec![name.to_owned()] } else { source.columns.clone() }
}

/// An input that only the job describes.
fn undescribed(name: &str, source: &Source) -> Result<InputTensor, Error> {
    let Some(datatype) = source.datatype else {
        return Err(Error::usage(format!(
            "input {name}: the hosts do not describe it, so it needs a datatype"
        )));
    };
    let row = source.shape.clone().unwrap_or_default();
    let columns = columns(name, source);
    checked(InputTensor { name: name.to_owned(), datatype, row, columns, is_optional: false })
}

/// An input that the host describes.
fn input(
    tensor: &TensorMetadata,
    source: &Source,
    optional: &BTreeSet<String>,
) -> Result<InputTensor, Error> {
    let TensorMetadata { name, datatype, shape } = tensor;
    let Some(datatype) = source.datatype.or_else(|| DataType::named(datatype)) else {
        return Err(Error::usage(format!(
            "input {name}: the model's type {datatype:?} is none of the protocol"
        )));
    };
    let row = match (&source.shape, &shape[..]) {
        (Some(row), _) => row.clone(),
        (None, [-1, row @ ..]) => row.to_vec(),
        (None, shape) => {
            return Err(Error::usage(format!(
                "input {name}: the model's shape {shape:?} does not begin with a number of rows \
                 (-1); state the sizes of one row as its shape, or row_by_row of the model if it takes \
                 one row in a request"
            )));
        }
    };
    let (columns, is_optional) = (columns(name, source), optional.contains(name));
    checked(InputTensor { name: name.clone(), datatype, row, columns, is_optional })
}

/// The input, unless its sizes leave a shape open.
fn checked(input: InputTensor) -> Result<InputTensor, Error> {
    let InputTensor { name, row, .. } = &input;
    if row.iter().filter(|size| **size < 0).count() > 1 {
        return Err(Error::usage(format!(
            "input {name}: several sizes of a row of {row:?} are open; state them as its shape"
        )));
    }
    if row.contains(&0) || outrigger_oip::shape::elements(&fixed(row)).is_err() {
        return Err(Error::usage(format!("input {name}: {row:?} is not a shape of a row")));
    }
    Ok(input)
}

/// The sizes that are known.
fn fixed(row: &[i64]) -> Vec<i64> {
    row.iter().copied().filter(|size| *size >= 0).collect()
}

/// Checks that the columns of an input are there, and have values of its type.
fn check_columns(input: &InputTensor, schema: &Schema) -> Result<(), Error> {
    let InputTensor { name, datatype, columns, .. } = input;
    for column in columns {
        let Ok(field) = schema.field_with_name(column) else {
            let known = names(schema.fields().iter().map(|field| field.name()));
            return Err(Error::usage(format!(
                "input {name}: the files have no column {column:?}; they have {known}"
            )));
        };
        let (leaf, is_list) = leaf(field.data_type());
        if !fits(leaf, *datatype) {
            let of = field.data_type();
            return Err(Error::usage(format!(
                "input {name}: the model takes {datatype}, and the column {column:?} has {of}"
            )));
        }
        if is_list && columns.len() > 1 {
            return Err(Error::usage(format!(
                "input {name}: the column {column:?} has lists, and one of several columns has one \
                 value in a row"
            )));
        }
    }
    Ok(())
}

/// The type of the values in lists, and true if there are lists.
pub(crate) fn leaf(of: &ArrowType) -> (&ArrowType, bool) {
    match of {
        ArrowType::List(item) => (leaf(item.data_type()).0, true),
        other => (other, false),
    }
}

/// True if values of a column can be those of a tensor: of the same kind, where a number may have
/// another size, and booleans are 0 and 1. An integer that is out of range, or a fraction for integers, is
/// never changed.
fn fits(of: &ArrowType, datatype: DataType) -> bool {
    let kind = kind(of);
    match datatype {
        _ if *of == ArrowType::Null => true,
        DataType::Bytes => kind == Some(Kind::Text) || *of == ArrowType::Binary,
        DataType::Fp16 => *of == ArrowType::Float16,
        DataType::Bf16 => false,
        _ => kind.is_some_and(|kind| kind != Kind::Text),
    }
}

/// The columns that the output has from the input.
///
/// # Errors
/// A column does not exist.
pub(crate) fn resolve_keys(
    keys: Option<&[String]>,
    inputs: &[InputTensor],
    schema: &Schema,
) -> Result<Vec<String>, Error> {
    let Some(keys) = keys else {
        let is_input = |name: &String| inputs.iter().any(|input| input.columns.contains(name));
        let fields = schema.fields().iter().map(|field| field.name());
        return Ok(fields.filter(|name| !is_input(name)).cloned().collect());
    };
    match keys.iter().find(|key| schema.field_with_name(key).is_err()) {
        None => Ok(keys.to_vec()),
        Some(unknown) => {
            let known = names(schema.fields().iter().map(|field| field.name()));
            Err(Error::usage(format!(
                "keys: the files have no column {unknown:?}; they have {known}"
            )))
        }
    }
}

/// Checks that no output has the name of a key.
///
/// # Errors
/// One has.
pub(crate) fn check_columns_apart(outputs: &[OutputColumn], keys: &[String]) -> Result<(), Error> {
    match outputs.iter().find(|output| keys.contains(&output.column)) {
        None => Ok(()),
        Some(OutputColumn { column, tensor, .. }) => Err(Error::usage(format!(
            "the output {tensor:?} and a key have the name {column:?}: give the output another one \
             under outputs, or leave the key out"
        ))),
    }
}

#[cfg(test)]
mod tests;
