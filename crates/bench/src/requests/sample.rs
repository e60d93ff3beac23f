//! Generates features from metadata.json, independent of the form.

use std::sync::Arc;

use outrigger_core::DType;
use outrigger_features::metadata::{Encoding, Entity, Feature, Input, Metadata, Size, Words};
use outrigger_proto::outrigger::v1::{
    IntegerList, NumberList, RealList, SparseList, TextList, value::Kind,
};
use rand::{RngExt as _, rngs::StdRng};

/// One user's request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) request_id: String,
    pub(super) routing_key: String,
    pub(super) user: Vec<(Arc<str>, Kind)>,
    pub(super) columns: Vec<Column>,
    pub(super) treatments: Vec<Treatment>,
}

/// A feature of treatments.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    pub(super) name: Arc<str>,
    pub(super) length: usize,
}

/// One treatment; its values are in the order of the sample's columns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Treatment {
    pub(super) id: String,
    pub(super) values: Vec<Kind>,
}

impl Sample {
    /// A request with a value for every feature.
    pub(super) fn new(metadata: &Metadata, treatments: usize, random: &mut StdRng) -> Self {
        let user = metadata
            .features_of(Entity::User)
            .map(|(input, feature)| (feature.name.clone(), value(input, feature, random)))
            .collect();
        let columns = metadata
            .features_of(Entity::Treatment)
            .map(|(_, feature)| Column { name: feature.name.clone(), length: feature.length })
            .collect();
        let mut treatment = |_| Treatment {
            id: format!("t{}", below_some(random)),
            values: metadata
                .features_of(Entity::Treatment)
                .map(|(input, feature)| value(input, feature, random))
                .collect(),
        };
        let treatments = (0..treatments).map(&mut treatment).collect();
        let request_id = format!("bench-{:016x}", random.random::<u64>());
        let routing_key = format!("user-{}", below_some(random));
        Self { request_id, routing_key, user, columns, treatments }
    }
}

/// A number of one to nine digits, so that names made of it differ in length.
fn below_some(random: &mut StdRng) -> u64 {
    let digits = random.random_range(1..10);
    random.random_range(0..10_u64.pow(digits))
}

fn value(input: &Input, feature: &Feature, random: &mut StdRng) -> Kind {
    let length = feature.length;
    match feature.size {
        Size::WeightOf(_) => return numbers(1, || random.random_range(-1.0..1.0)),
        Size::Sparse => return sparse(feature, random),
        Size::Exact | Size::Padded(_) | Size::Ragged => {}
    }
    match (&feature.encoding, input.dtype) {
        (Encoding::Vocabulary { words: Words::Texts(words), .. }, _) => {
            texts(length, || words[random.random_range(0..words.len())].to_string())
        }
        (Encoding::Vocabulary { words: Words::Integers(words), .. }, _) => {
            integers(length, || words[random.random_range(0..words.len())])
        }
        (Encoding::HashBuckets(_), _) | (Encoding::Plain, DType::String) => {
            texts(length, || format!("v{}", below_some(random)))
        }
        (Encoding::Plain, DType::Float32) => numbers(length, || random.random_range(-1.0..1.0)),
        (Encoding::Plain, DType::Float64) => reals(length, || random.random_range(-1.0..1.0)),
        (Encoding::Plain, DType::Bool) if length == 1 => Kind::Flag(random.random()),
        // There are no lists of booleans; 0 and 1 are accepted instead.
        (Encoding::Plain, DType::Bool) => integers(length, || random.random_range(0..2)),
        // The integers: features have no other types.
        (Encoding::Plain, _) => integers(length, || random.random_range(0..1000)),
    }
}

/// Ids or names, each with a weight, as many as the feature takes.
fn sparse(feature: &Feature, random: &mut StdRng) -> Kind {
    let mut list = SparseList::default();
    for _ in 0..feature.length {
        match &feature.encoding {
            Encoding::Plain => list.ids.push(below_some(random)),
            Encoding::HashBuckets(_) => list.names.push(format!("v{}", below_some(random))),
            Encoding::Vocabulary { words: Words::Texts(words), .. } => {
                list.names.push(words[random.random_range(0..words.len())].to_string());
            }
            Encoding::Vocabulary { words: Words::Integers(words), .. } => {
                list.ids.push(words[random.random_range(0..words.len())].cast_unsigned());
            }
        }
        list.weights.push(random.random_range(-1.0..1.0));
    }
    Kind::Sparse(list)
}

fn numbers(length: usize, mut value: impl FnMut() -> f32) -> Kind {
    match length {
        1 => Kind::Number(value()),
        _ => Kind::Numbers(NumberList { values: (0..length).map(|_| value()).collect() }),
    }
}

fn reals(length: usize, mut value: impl FnMut() -> f64) -> Kind {
    match length {
        1 => Kind::Real(value()),
        _ => Kind::Reals(RealList { values: (0..length).map(|_| value()).collect() }),
    }
}

fn integers(length: usize, mut value: impl FnMut() -> i64) -> Kind {
    match length {
        1 => Kind::Integer(value()),
        _ => Kind::Integers(IntegerList { values: (0..length).map(|_| value()).collect() }),
    }
}

fn texts(length: usize, mut value: impl FnMut() -> String) -> Kind {
    match length {
        1 => Kind::Text(value()),
        _ => Kind::Texts(TextList { values: (0..length).map(|_| value()).collect() }),
    }
}
