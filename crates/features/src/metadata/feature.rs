//! Reads one entry of an input's `features` in metadata.json.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use outrigger_core::DType;
use serde_json::Value;

use super::{Absence, Encoding, Entity, Feature, MAX_LENGTH, Raw, Size, Words};
use crate::{
    numbers,
    reader::{Node, Object, Wrong},
};

type Result<T> = std::result::Result<T, Wrong>;

/// The keys that are accepted, with the one for joined inputs last.
const KEYS: [&str; 12] = [
    "name",
    "length",
    "max",
    "padding",
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

/// Reads a feature of an input of entity `of`; `ragged` is true if the input has `lengths`.
pub(super) fn read(
    object: &Object<'_>,
    (of, dtype, ragged): (Entity, DType, bool),
) -> Result<Feature> {
    let entity = read_entity(object, &KEYS, of)?;
    let name = object.required("name")?.name()?.into();
    let (length, size) = read_size(object, dtype, ragged)?;
    let encoding = read_encoding(object, dtype, |words| read_vocabulary(object, words, dtype))?;
    let allow_non_finite = read_allow_non_finite(object, dtype)?;
    let absence = read_absence(object, dtype, (length, &size), &encoding)?;
    Ok(Feature { name, entity, length, size, encoding, absence, allow_non_finite })
}

/// The number of values: `length` of them, or a list of at most `max`.
fn read_size(object: &Object<'_>, dtype: DType, ragged: bool) -> Result<(usize, Size)> {
    let (max, padding) = (object.optional("max"), object.optional("padding"));
    let Some(max) = max else {
        if let Some(padding) = padding {
            return Err(padding.error("only a list is padded: one with \"max\""));
        }
        if ragged {
            return Err(object.at("max", "is required: the input has lengths"));
        }
        let length = object.optional("length").map_or(Ok(1), |node| read_length(&node))?;
        return Ok((length, Size::Exact));
    };
    if let Some(length) = object.optional("length") {
        return Err(length.error("length and max exclude each other"));
    }
    let max = read_length(&max)?;
    match (padding, ragged) {
        (Some(padding), false) => Ok((max, Size::Padded(read_plain(&padding, dtype)?))),
        (None, true) => Ok((max, Size::Ragged)),
        (Some(padding), true) => Err(padding.error("the input has lengths, so it is not padded")),
        (None, false) => {
            Err(object.at("padding", "is required: the element after the values of a short list"))
        }
    }
}

/// The entity of a feature in an input of entity `of`. The last one of `keys` is only for the
/// features of joined inputs.
pub(super) fn read_entity(object: &Object<'_>, keys: &[&str], of: Entity) -> Result<Entity> {
    if of == Entity::Joined {
        object.only(keys)?;
        return object.required("entity")?.one_of(&ENTITIES);
    }
    object.only(&keys[..keys.len() - 1])?;
    Ok(of)
}

/// Reads a number of values.
pub(super) fn read_length(node: &Node<'_>) -> Result<usize> {
    let length = node.integer()?;
    let valid = usize::try_from(length).ok().filter(|length| (1..=MAX_LENGTH).contains(length));
    valid.ok_or_else(|| node.error(format!("must be 1 to {MAX_LENGTH}, is {length}")))
}

/// Reads the encoding of a value; `read_vocabulary` reads one with this `vocabulary`.
pub(super) fn read_encoding(
    object: &Object<'_>,
    dtype: DType,
    read_vocabulary: impl Fn(&Node<'_>) -> Result<Encoding>,
) -> Result<Encoding> {
    let (words, buckets) = (object.optional("vocabulary"), object.optional("hash_buckets"));
    if words.is_none()
        && let Some(node) = object.optional("out_of_vocabulary")
    {
        return Err(node.error("there is no vocabulary"));
    }
    match (words, buckets) {
        (None, None) => Ok(Encoding::Plain),
        (Some(words), None) => read_vocabulary(&words),
        (None, Some(buckets)) => read_buckets(&buckets, dtype),
        (Some(_), Some(buckets)) => {
            Err(buckets.error("a feature has a vocabulary or hash buckets, not both"))
        }
    }
}

fn read_vocabulary(object: &Object<'_>, node: &Node<'_>, dtype: DType) -> Result<Encoding> {
    needs_numbers(node, dtype, "a vocabulary")?;
    let words = read_words(node)?;
    let index = object.required("out_of_vocabulary")?;
    let other = index.integer()?;
    if !numbers::fits(other, dtype) {
        return Err(index.error(format!("{other} does not fit {dtype}")));
    }
    Ok(Encoding::Vocabulary { words, ids: Vec::new(), out_of_vocabulary: Some(other) })
}

pub(super) fn read_words(node: &Node<'_>) -> Result<Words> {
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
    needs_numbers(node, dtype, "hash_buckets")?;
    let buckets = node.integer()?;
    if buckets < 1 {
        return Err(node.error(format!("must be at least 1, is {buckets}")));
    }
    if !numbers::fits(buckets - 1, dtype) {
        return Err(node.error(format!("the highest bucket of {buckets} does not fit {dtype}")));
    }
    Ok(Encoding::HashBuckets(buckets.unsigned_abs()))
}

fn needs_numbers(node: &Node<'_>, dtype: DType, what: &str) -> Result<()> {
    match dtype {
        DType::Int32 | DType::Int64 | DType::Float32 | DType::Float64 => Ok(()),
        _ => Err(node.error(format!("{what} needs a tensor of numbers, this one is {dtype}"))),
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
    (length, size): (usize, &Size),
    encoding: &Encoding,
) -> Result<Absence> {
    let required = object.flag("required", false)?;
    match (object.optional("default"), required, object.optional("missing")) {
        (Some(node), false, None) => {
            let values = read_default(&node, |value| read_raw(value, dtype, encoding))?;
            check_default(&node, values.len(), length, size)?;
            Ok(Absence::Default(values))
        }
        (None, true, None) => Ok(Absence::Required),
        (None, false, Some(node)) if *size == Size::Ragged => {
            Err(node.error("the default of a list without values is []"))
        }
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

/// Reads the values of a default: one, or a list of them.
pub(super) fn read_default(
    node: &Node<'_>,
    read: impl Fn(&Node<'_>) -> Result<Raw>,
) -> Result<Vec<Raw>> {
    let values = match node.value {
        Value::Array(_) => node.array()?,
        _ => vec![node.clone()],
    };
    values.iter().map(read).collect()
}

/// Refuses a default with a number of values that a request may not send.
pub(super) fn check_default(
    node: &Node<'_>,
    found: usize,
    length: usize,
    size: &Size,
) -> Result<()> {
    match size {
        Size::Exact if found != length => {
            Err(node.error(format!("the feature has length {length}, the default {found}")))
        }
        _ if found > length => {
            Err(node.error(format!("the list has at most {length} values, the default {found}")))
        }
        _ => Ok(()),
    }
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
        // An input with features has none of the other types.
        _ => Err(node.error(format!("there are no features of {dtype}"))),
    }
}

pub(super) fn read_number(node: &Node<'_>, dtype: DType) -> Result<Raw> {
    let value = node.value.as_f64().ok_or_else(|| node.expected("a number"))?;
    if dtype == DType::Float32 && (value as f32).is_infinite() {
        return Err(node.error(format!("{value:e} is too large for float32")));
    }
    Ok(node.value.as_i64().map_or(Raw::Real(value), Raw::Integer))
}

pub(super) fn read_word(node: &Node<'_>, words: &Words) -> Result<Raw> {
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
