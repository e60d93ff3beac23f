//! Reads one entry of `inputs` in metadata.json.

use std::sync::Arc;

use outrigger_core::DType;

use super::{Entity, Feature, Input, MAX_WIDTH, feature, sparse};
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

/// The form of an input's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    Dense,
    /// With `lengths`.
    Ragged,
    /// With `lengths` and `weights`.
    Sparse,
}

pub(super) fn read(object: &Object<'_>) -> Result<Input, Wrong> {
    object.only(&["tensor", "lengths", "weights", "entity", "dtype", "features"])?;
    let tensor = object.required("tensor")?.name()?.into();
    let entity = object.required("entity")?.one_of(&ENTITIES)?;
    let dtype = read_dtype(&object.required("dtype")?, entity)?;
    let weights = read_weights(object, entity, dtype)?;
    let lengths = object.optional("lengths");
    let rows = match (&lengths, &weights) {
        (None, _) => Rows::Dense,
        (Some(_), None) => Rows::Ragged,
        (Some(_), Some(_)) => Rows::Sparse,
    };
    let lengths = lengths.map(|node| read_lengths(&node, entity, rows)).transpose()?;
    let features = read_features(object, (entity, dtype), rows)?;
    Ok(Input { tensor, entity, dtype, lengths, weights, features })
}

/// The tensor with the weights of a sparse input, which also has lengths.
fn read_weights(
    object: &Object<'_>,
    entity: Entity,
    dtype: DType,
) -> Result<Option<Arc<str>>, Wrong> {
    let Some(node) = object.optional("weights") else { return Ok(None) };
    if !entity.has_features() {
        return Err(node.error(format!("a {} has no features", entity.as_str())));
    }
    if object.optional("lengths").is_none() {
        return Err(object.at("lengths", "is required: the number of ids of each row"));
    }
    if dtype != DType::Int64 {
        return Err(object.at("dtype", &format!("ids with weights are int64, not {dtype}")));
    }
    Ok(Some(node.name()?.into()))
}

fn read_lengths(node: &Node<'_>, entity: Entity, rows: Rows) -> Result<Arc<str>, Wrong> {
    if matches!(entity, Entity::User | Entity::Treatment) || rows == Rows::Sparse {
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
    (entity, dtype): (Entity, DType),
    rows: Rows,
) -> Result<Vec<Feature>, Wrong> {
    if !entity.has_features() {
        return match object.optional("features") {
            Some(node) => Err(node.error(format!("a {} has no features", entity.as_str()))),
            None => Ok(Vec::new()),
        };
    }
    let nodes = object.required("features")?.filled_array("at least one feature is needed")?;
    let read = |node: &Node<'_>| match (node.object()?, rows) {
        (object, Rows::Sparse) => sparse::read(&object, entity),
        (object, _) => feature::read(&object, (entity, dtype, rows == Rows::Ragged)),
    };
    let features: Vec<Feature> = nodes.iter().map(read).collect::<Result<_, _>>()?;
    if rows == Rows::Ragged && features.len() > 1 {
        return Err(object.at("features", "an input with lengths has a single feature"));
    }
    let width: usize = features.iter().map(|feature| feature.length).sum();
    if width > MAX_WIDTH {
        let message = format!("a row has {width} values, at most {MAX_WIDTH} are allowed");
        return Err(object.at("features", &message));
    }
    Ok(features)
}
