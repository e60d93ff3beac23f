//! Reads one entry of the `features` of a sparse input in metadata.json: one with `weights`.

use std::sync::Arc;

use outrigger_core::DType;
use serde_json::Value;

use super::{
    Absence, Encoding, Entity, Feature, Raw, Size, Words,
    feature::{
        check_default, read_default, read_encoding, read_entity, read_length, read_number,
        read_word, read_words,
    },
};
use crate::reader::{Node, Object, Wrong};

type Result<T> = std::result::Result<T, Wrong>;

/// The keys that are accepted, with the one for joined inputs last.
const KEYS: [&str; 10] = [
    "name",
    "max",
    "id",
    "default",
    "required",
    "vocabulary",
    "out_of_vocabulary",
    "hash_buckets",
    "allow_non_finite",
    "entity",
];

/// Reads a feature of an input of entity `of`.
pub(super) fn read(object: &Object<'_>, of: Entity) -> Result<Feature> {
    let entity = read_entity(object, &KEYS, of)?;
    let name = object.required("name")?.name()?.into();
    let (length, size) = read_size(object)?;
    let encoding = encoding_of(object, &size)?;
    let allow_non_finite = object.flag("allow_non_finite", false)?;
    let absence = read_absence(object, length, &size, &encoding)?;
    Ok(Feature { name, entity, length, size, encoding, absence, allow_non_finite })
}

/// A list of up to `max` ids, or the weight of one `id`.
fn read_size(object: &Object<'_>) -> Result<(usize, Size)> {
    match (object.optional("max"), object.optional("id")) {
        (Some(max), None) => Ok((read_length(&max)?, Size::Sparse)),
        (None, Some(id)) => Ok((1, Size::WeightOf(read_id(&id)?))),
        (Some(_), Some(id)) => Err(id.error("max and id exclude each other")),
        (None, None) => {
            let message = "is required, or an id whose weight the feature is: the rows are sparse";
            Err(object.at("max", message))
        }
    }
}

fn read_id(node: &Node<'_>) -> Result<u64> {
    let whole = || node.integer().ok().and_then(|id| u64::try_from(id).ok());
    let id = node.value.as_u64().or_else(whole);
    id.ok_or_else(|| node.error("expected a whole number from 0 to 18446744073709551615"))
}

fn encoding_of(object: &Object<'_>, size: &Size) -> Result<Encoding> {
    let of_names = object.optional("vocabulary").or_else(|| object.optional("hash_buckets"));
    match (size, of_names) {
        (Size::WeightOf(_), Some(node)) => {
            Err(node.error("a weight is a number: only a list of ids has names"))
        }
        _ => read_encoding(object, DType::Int64, |words| read_vocabulary(object, words)),
    }
}

/// Words whose ids are their positions, or names with their ids.
fn read_vocabulary(object: &Object<'_>, node: &Node<'_>) -> Result<Encoding> {
    let (words, ids) = match node.value {
        Value::Object(_) => read_names(node)?,
        _ => (read_words(node)?, Vec::new()),
    };
    let other = object.optional("out_of_vocabulary").map(|node| read_id(&node)).transpose()?;
    Ok(Encoding::Vocabulary { words, ids, out_of_vocabulary: other.map(u64::cast_signed) })
}

fn read_names(node: &Node<'_>) -> Result<(Words, Vec<u64>)> {
    let object = node.object()?;
    if object.map.is_empty() {
        return Err(node.error("at least one word is needed"));
    }
    let names: Vec<Arc<str>> = object.map.keys().map(|name| name.as_str().into()).collect();
    let ids = names.iter().map(|name| read_id(&object.required(name)?)).collect::<Result<_>>()?;
    Ok((Words::Texts(names), ids))
}

fn read_absence(
    object: &Object<'_>,
    length: usize,
    size: &Size,
    encoding: &Encoding,
) -> Result<Absence> {
    match (object.optional("default"), object.flag("required", false)?) {
        (Some(node), false) => {
            let values = read_default(&node, |value| read_raw(value, size, encoding))?;
            check_default(&node, values.len(), length, size)?;
            Ok(Absence::Default(values))
        }
        (None, true) => Ok(Absence::Required),
        (None, false) => {
            Err(object.error("says nothing about absence: one of default and required is needed"))
        }
        (Some(_), true) => Err(object.error("default and required exclude each other")),
    }
}

fn read_raw(node: &Node<'_>, size: &Size, encoding: &Encoding) -> Result<Raw> {
    match (size, encoding) {
        (Size::WeightOf(_), _) => read_number(node, DType::Float32),
        (_, Encoding::Plain) => read_id(node).map(Raw::Id),
        (_, Encoding::HashBuckets(_)) => Ok(Raw::Text(node.text()?.into())),
        (_, Encoding::Vocabulary { words, .. }) => read_word(node, words),
    }
}
