//! Features in JSON: names, nested by dots, and their values.

use std::collections::HashMap;

use outrigger_core::{DType, Failure, Reason};
use outrigger_proto::outrigger::v1::{
    IntegerList, NumberList, RealList, TextList, Value, value::Kind,
};
use serde_json::Value as Json;

use super::{failure, malformed};
use crate::{
    Plan,
    metadata::Entity,
    reader::{Node, Wrong, kind},
};

/// Reads an object's leaves as features.
pub(super) fn read(
    plan: &Plan,
    entity: Entity,
    node: &Node<'_>,
) -> Result<HashMap<String, Value>, Failure> {
    let mut features = HashMap::new();
    let object = node.object().map_err(malformed)?;
    let mut leaf = |name: &str, value: &Json| {
        let kind = read_leaf(plan.dtype_of(entity, name), value).map_err(|message| {
            let path = format!("{}[{name:?}]", node.path);
            failure(Reason::FeatureType, Wrong { path, message })
        })?;
        match features.insert(name.to_owned(), Value { kind: Some(kind) }) {
            None => Ok(()),
            Some(_) => {
                let (path, message) = (format!("{}[{name:?}]", node.path), "given twice".into());
                Err(malformed(Wrong { path, message }))
            }
        }
    };
    descend(object.map, &mut String::new(), &mut leaf)?;
    Ok(features)
}

fn descend(
    object: &serde_json::Map<String, Json>,
    path: &mut String,
    leaf: &mut impl FnMut(&str, &Json) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for (key, value) in object {
        let parent = path.len();
        if parent > 0 {
            path.push('.');
        }
        path.push_str(key);
        match value {
            Json::Null => {}
            Json::Object(object) => descend(object, path, leaf)?,
            value => leaf(path, value)?,
        }
        path.truncate(parent);
    }
    Ok(())
}

/// A leaf's value; `dtype` is that of the feature's tensor, if the model names
/// the feature.
fn read_leaf(dtype: Option<DType>, value: &Json) -> Result<Kind, String> {
    Ok(match value {
        Json::Bool(flag) => Kind::Flag(*flag),
        Json::String(text) => Kind::Text(text.clone()),
        Json::Array(values) => return read_list(dtype, values),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Kind::Integer(integer),
            None => Kind::Real(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::Null | Json::Object(_) => return Err("expected a value".to_owned()),
    })
}

fn read_list(dtype: Option<DType>, values: &[Json]) -> Result<Kind, String> {
    if values.is_empty() {
        return Ok(Kind::Numbers(NumberList::default()));
    }
    if let Some(values) = all(values, Json::as_i64) {
        return Ok(Kind::Integers(IntegerList { values }));
    }
    if let Some(values) = all(values, Json::as_f64) {
        return Ok(Kind::Reals(RealList { values }));
    }
    if let Some(values) = all(values, |value| value.as_str().map(str::to_owned)) {
        return Ok(Kind::Texts(TextList { values }));
    }
    let flags = all(values, |value| value.as_bool().map(i64::from));
    match (flags, dtype) {
        (Some(values), Some(DType::Bool) | None) => Ok(Kind::Integers(IntegerList { values })),
        // Not a feature of the model, so nobody minds; it counts as one value.
        (None, None) => Ok(Kind::Flag(true)),
        (Some(_), Some(dtype)) => Err(format!("expected {dtype} values, found flags")),
        (None, Some(_)) => {
            let kinds: Vec<_> = values.iter().take(3).map(kind).collect();
            Err(format!("expected values of one type, found {}, …", kinds.join(", ")))
        }
    }
}

fn all<T>(values: &[Json], read: impl Fn(&Json) -> Option<T>) -> Option<Vec<T>> {
    values.iter().map(read).collect()
}
