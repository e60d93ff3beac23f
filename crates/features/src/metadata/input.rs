//! Reads one entry of `inputs` in metadata.json.

use std::sync::Arc;

use outrigger_core::DType;

use super::{Entity, Feature, Input, MAX_WIDTH, feature};
use crate::reader::{Node, Object, Wrong};

const ENTITIES: [(&str, Entity); 5] = [
    (Entity::User.as_str(), Entity::User),
    (Entity::Treatment.as_str(), Entity::Treatment),
    (Entity::TreatmentCount.as_str(), Entity::TreatmentCount),
    (Entity::Seed.as_str(), Entity::Seed),
    (Entity::Joined.as_str(), Entity::Joined),
];

const DTYPES: [(&str, DType); 6] = [
    (DType::Float32.as_str(), DType::Float32),
    (DType::Float64.as_str(), DType::Float64),
    (DType::Int32.as_str(), DType::Int32),
    (DType::Int64.as_str(), DType::Int64),
    (DType::Bool.as_str(), DType::Bool),
    (DType::String.as_str(), DType::String),
];

pub(super) fn read(object: &Object<'_>) -> Result<Input, Wrong> {
    object.only(&["tensor", "lengths", "entity", "dtype", "features"])?;
    let tensor = object.required("tensor")?.name()?.into();
    let entity = object.required("entity")?.one_of(&ENTITIES)?;
    let dtype = read_dtype(&object.required("dtype")?, entity)?;
    let lengths = object.optional("lengths").map(|node| read_lengths(&node, entity)).transpose()?;
    let features = read_features(object, (entity, dtype, lengths.is_some()))?;
    Ok(Input { tensor, entity, dtype, lengths, features })
}

fn read_lengths(node: &Node<'_>, entity: Entity) -> Result<Arc<str>, Wrong> {
    if matches!(entity, Entity::User | Entity::Treatment) {
        return Ok(node.name()?.into());
    }
    Err(node.error(format!("only a user or a treatment has lists, not a {}", entity.as_str())))
}

fn read_dtype(node: &Node<'_>, entity: Entity) -> Result<DType, Wrong> {
    let dtype = node.one_of(&DTYPES)?;
    let (fits, allowed) = match entity {
        Entity::User | Entity::Treatment | Entity::Joined => (true, ""),
        Entity::TreatmentCount => (matches!(dtype, DType::Int32 | DType::Int64), "int32 or int64"),
        Entity::Seed => (dtype == DType::Int64, "int64"),
    };
    let refuse = || node.error(format!("a {} is {allowed}, not {dtype}", entity.as_str()));
    if fits { Ok(dtype) } else { Err(refuse()) }
}

fn read_features(
    object: &Object<'_>,
    (entity, dtype, ragged): (Entity, DType, bool),
) -> Result<Vec<Feature>, Wrong> {
    if !entity.has_features() {
        return match object.optional("features") {
            Some(node) => Err(node.error(format!("a {} has no features", entity.as_str()))),
            None => Ok(Vec::new()),
        };
    }
    let nodes = object.required("features")?.filled_array("at least one feature is needed")?;
    let features: Vec<Feature> = nodes
        .iter()
        .map(|node| feature::read(&node.object()?, (entity, dtype, ragged)))
        .collect::<Result<_, _>>()?;
    if ragged && features.len() > 1 {
        return Err(object.at("features", "an input with lengths has a single feature"));
    }
    let width: usize = features.iter().map(|feature| feature.length).sum();
    if width > MAX_WIDTH {
        let message = format!("a row has {width} values, at most {MAX_WIDTH} are allowed");
        return Err(object.at("features", &message));
    }
    Ok(features)
}
