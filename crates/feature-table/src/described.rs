//! The metadata of a model's features as inputs.

use std::collections::BTreeSet;

use outrigger_core::DType;
use outrigger_features::{
    Plan,
    metadata::{Absence, Encoding, Entity, Feature, Metadata, Size, Words},
};
use outrigger_oip::{DataType, metadata::TensorMetadata};

use crate::outputs::datatype;

/// The inputs and outputs of a model's table. Features of ids with weights have lists of ids, each of
/// weight 1.
pub fn described(plan: &Plan) -> (Vec<TensorMetadata>, Vec<TensorMetadata>) {
    let metadata = plan.metadata();
    let of = |entity| {
        metadata.features_of(entity).map(move |(input, feature)| TensorMetadata {
            name: name(metadata, entity, feature),
            datatype: of_values(feature, input.dtype).as_str().to_owned(),
            shape: vec![-1, width(&feature.size, feature.length)],
        })
    };
    let inputs = of(Entity::User).chain(of(Entity::Treatment)).collect();
    let outputs = metadata.outputs.iter().map(|output| TensorMetadata {
        name: output.name.to_string(),
        datatype: datatype(plan, output).as_str().to_owned(),
        shape: vec![-1, size(output.width)],
    });
    (inputs, outputs.collect())
}

/// The inputs that a table may leave out, or have without a value in some rows.
pub fn optional(metadata: &Metadata) -> BTreeSet<String> {
    let of = |entity| {
        let features = metadata.features_of(entity).map(|(_, feature)| feature);
        features
            .filter(|feature| !matches!(feature.absence, Absence::Required))
            .map(move |feature| name(metadata, entity, feature))
    };
    of(Entity::User).chain(of(Entity::Treatment)).collect()
}

/// The name of the input for a feature; qualified if both entities have a feature of its name.
fn name(metadata: &Metadata, entity: Entity, feature: &Feature) -> String {
    let other = if entity == Entity::User { Entity::Treatment } else { Entity::User };
    match metadata.features_of(other).any(|(_, it)| it.name == feature.name) {
        true => format!("{}.{}", entity.as_str(), feature.name),
        false => feature.name.to_string(),
    }
}

/// The datatype of the values that a feature takes.
fn of_values(feature: &Feature, dtype: DType) -> DataType {
    match (&feature.size, &feature.encoding) {
        (Size::WeightOf(_), _) => DataType::Fp32,
        (Size::Sparse, Encoding::Plain) => DataType::Int64,
        (_, Encoding::Plain) => dtype.into(),
        (_, Encoding::Vocabulary { words: Words::Integers(_), .. }) => DataType::Int64,
        (_, Encoding::Vocabulary { .. } | Encoding::HashBuckets(_)) => DataType::Bytes,
    }
}

fn width(found: &Size, length: usize) -> i64 {
    match found {
        Size::Exact | Size::WeightOf(_) => size(length),
        Size::Padded(_) | Size::Ragged | Size::Sparse => -1,
    }
}

fn size(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
