//! Reads one entry of an input's `features` in metadata.json.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use outrigger_core::DType;
use serde_json::Value;

use super::{Absence, Encoding, Entity, Feature, MAX_LENGTH, Raw, Words};
use crate::{
    numbers,
    reader::{Node, Object, Wrong},
};

type Result<T> = std::result::Result<T, Wrong>;

/// The keys that are accepted. The last one is only for the features of joined inputs.
const KEYS: [&str; 10] = [
    "name",
    "length",
    "default",
    "required",
    "missing",
    "vocabulary",
    "out_of_vocabulary",
    "hash_buckets",
    "allow_non_finite",
    "entity",
];

const ENTITIES: [(&str, Entity); 2] =
    [(Entity::User.as_str(), Entity::User), (Entity::Treatment.as_str(), Entity::Treatment)];

pub(super) fn read(object: &Object<'_>, of: Entity, dtype: DType) -> Result<Feature> {
    let entity = read_entity(object, of)?;
    let name = object.required("name")?.name()?.into();
    let length = object.optional("length").map_or(Ok(1), |node| read_length(&node))?;
    let encoding = read_encoding(object, dtype)?;
    let allow_non_finite = read_allow_non_finite(object, dtype)?;
    let absence = read_absence(object, dtype, length, &encoding)?;
    Ok(Feature { name, entity, length, encoding, absence, allow_non_finite })
}

/// The entity of a feature in an input of entity `of`.
fn read_entity(object: &Object<'_>, of: Entity) -> Result<Entity> {
    if of == Entity::Joined {
        object.only(&KEYS)?;
        return object.required("entity")?.one_of(&ENTITIES);
    }
    object.only(&KEYS[..KEYS.len() - 1])?;
    Ok(of)
}

/// Reads a number of values.
pub(super) fn read_length(node: &Node<'_>) -> Result<usize> {
    let length = node.integer()?;
    let valid = usize::try_from(length).ok().filter(|length| (1..=MAX_LENGTH).contains(length));
    valid.ok_or_else(|| node.error(format!("must be 1 to {MAX_LENGTH}, is {length}")))
}

fn read_encoding(object: &Object<'_>, dtype: DType) -> Result<Encoding> {
    let (words, buckets) = (object.optional("vocabulary"), object.optional("hash_buckets"));
    if words.is_none()
        && let Some(node) = object.optional("out_of_vocabulary")
    {
        return Err(node.error("there is no vocabulary"));
    }
    match (words, buckets) {
        (None, None) => Ok(Encoding::Plain),
        (Some(words), None) => read_vocabulary(object, &words, dtype),
        (None, Some(buckets)) => read_buckets(&buckets, dtype),
        (Some(_), Some(buckets)) => {
            Err(buckets.error("a feature has a vocabulary or hash buckets, not both"))
        }
    }
}

fn read_vocabulary(object: &Object<'_>, node: &Node<'_>, dtype: DType) -> Result<Encoding> {
    needs_integers(node, dtype, "a vocabulary")?;
    let words = read_words(node)?;
    let index = object.required("out_of_vocabulary")?;
    let out_of_vocabulary = index.integer()?;
    if !numbers::fits(out_of_vocabulary, dtype) {
        return Err(index.error(format!("{out_of_vocabulary} does not fit {dtype}")));
    }
    Ok(Encoding::Vocabulary { words, out_of_vocabulary })
}

fn read_words(node: &Node<'_>) -> Result<Words> {
    let nodes = node.filled_array("at least one word is needed")?;
    if nodes[0].value.is_number() {
        let words = nodes.iter().map(|node| node.integer()).collect::<Result<Vec<i64>>>()?;
        refuse_repeated(&nodes, &words)?;
        return Ok(Words::Integers(words));
    }
    let words =
        nodes.iter().map(|node| Ok(node.text()?.into())).collect::<Result<Vec<Arc<str>>>>()?;
    refuse_repeated(&nodes, &words)?;
    Ok(Words::Texts(words))
}

fn refuse_repeated<T: Hash + Eq>(nodes: &[Node<'_>], words: &[T]) -> Result<()> {
    let mut seen = HashSet::with_capacity(words.len());
    match words.iter().position(|word| !seen.insert(word)) {
        Some(index) => Err(nodes[index].error("this word stands in the vocabulary already")),
        None => Ok(()),
    }
}

fn read_buckets(node: &Node<'_>, dtype: DType) -> Result<Encoding> {
    needs_integers(node, dtype, "hash_buckets")?;
    let buckets = node.integer()?;
    if buckets < 1 {
        return Err(node.error(format!("must be at least 1, is {buckets}")));
    }
    if !numbers::fits(buckets - 1, dtype) {
        return Err(node.error(format!("the highest bucket of {buckets} does not fit {dtype}")));
    }
    Ok(Encoding::HashBuckets(buckets.unsigned_abs()))
}

fn needs_integers(node: &Node<'_>, dtype: DType, what: &str) -> Result<()> {
    match dtype {
        DType::Int32 | DType::Int64 => Ok(()),
        _ => Err(node.error(format!("{what} needs an int32 or int64 tensor, this one is {dtype}"))),
    }
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::Float32 | DType::Float64)
}

fn read_allow_non_finite(object: &Object<'_>, dtype: DType) -> Result<bool> {
    let Some(node) = object.optional("allow_non_finite") else { return Ok(false) };
    let allow = node.flag()?;
    if is_float(dtype) {
        return Ok(allow);
    }
    Err(node.error(format!("only floats can be infinite or NaN, this tensor is {dtype}")))
}

fn read_absence(
    object: &Object<'_>,
    dtype: DType,
    length: usize,
    encoding: &Encoding,
) -> Result<Absence> {
    let required = object.flag("required", false)?;
    match (object.optional("default"), required, object.optional("missing")) {
        (Some(node), false, None) => read_default(&node, dtype, length, encoding),
        (None, true, None) => Ok(Absence::Required),
        (None, false, Some(node)) => read_missing(&node, dtype),
        (None, false, None) => Err(object
            .error("says nothing about absence: one of default, required and missing is needed")),
        _ => Err(object.error("default, required and missing exclude each other")),
    }
}

fn read_missing(node: &Node<'_>, dtype: DType) -> Result<Absence> {
    node.one_of(&[("nan", ())])?;
    if is_float(dtype) {
        return Ok(Absence::Nan);
    }
    Err(node.error(format!("only floats can be NaN, this tensor is {dtype}")))
}

fn read_default(
    node: &Node<'_>,
    dtype: DType,
    length: usize,
    encoding: &Encoding,
) -> Result<Absence> {
    let values = match node.value {
        Value::Array(_) => node.array()?,
        _ => vec![node.clone()],
    };
    if values.len() != length {
        let found = values.len();
        return Err(node.error(format!("the feature has length {length}, the default {found}")));
    }
    let raw = |value: &Node<'_>| read_raw(value, dtype, encoding);
    values.iter().map(raw).collect::<Result<_>>().map(Absence::Default)
}

/// A raw value of the type that requests must send for this feature.
fn read_raw(node: &Node<'_>, dtype: DType, encoding: &Encoding) -> Result<Raw> {
    match encoding {
        Encoding::Plain => read_plain(node, dtype),
        Encoding::HashBuckets(_) => Ok(Raw::Text(node.text()?.into())),
        Encoding::Vocabulary { words, .. } => read_word(node, words),
    }
}

fn read_plain(node: &Node<'_>, dtype: DType) -> Result<Raw> {
    match dtype {
        DType::Float32 | DType::Float64 => read_number(node, dtype),
        DType::Int32 | DType::Int64 => {
            let value = node.integer()?;
            let refuse = || node.error(format!("{value} does not fit {dtype}"));
            if numbers::fits(value, dtype) { Ok(Raw::Integer(value)) } else { Err(refuse()) }
        }
        DType::Bool => Ok(Raw::Flag(node.flag()?)),
        DType::String => Ok(Raw::Text(node.text()?.into())),
    }
}

fn read_number(node: &Node<'_>, dtype: DType) -> Result<Raw> {
    let value = node.value.as_f64().ok_or_else(|| node.expected("a number"))?;
    if dtype == DType::Float32 && (value as f32).is_infinite() {
        return Err(node.error(format!("{value:e} is too large for float32")));
    }
    Ok(node.value.as_i64().map_or(Raw::Real(value), Raw::Integer))
}

fn read_word(node: &Node<'_>, words: &Words) -> Result<Raw> {
    let (raw, known) = match words {
        Words::Texts(words) => {
            let text = node.text()?;
            (Raw::Text(text.into()), words.iter().any(|word| **word == *text))
        }
        Words::Integers(words) => {
            let value = node.integer()?;
            (Raw::Integer(value), words.contains(&value))
        }
    };
    if known { Ok(raw) } else { Err(node.error("not a word of the vocabulary")) }
}
