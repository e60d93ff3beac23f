//! Requests as protobuf messages whose maps have a fixed order. prost's own maps would be
//! encoded in a different order each time, which real clients do not do.

use std::collections::HashMap;

use bytes::Bytes;
use outrigger_proto::outrigger::v1::{
    IntegerColumn, Matrix, ModelSelector, PredictRequest, ResponseOptions, SparseColumn,
    TextColumn, TreatmentTable, Value, predict_request, value::Kind,
};
use prost::Message;

use super::sample::{Column, Sample, Treatment as Sampled};

/// `PredictRequest` without its model.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "2")]
    request_id: String,
    #[prost(string, tag = "3")]
    routing_key: String,
    #[prost(message, optional, tag = "4")]
    user: Option<User>,
    #[prost(message, repeated, tag = "6")]
    treatments: Vec<Treatment>,
    #[prost(message, optional, tag = "7")]
    table: Option<TreatmentTable>,
    #[prost(message, optional, tag = "9")]
    options: Option<ResponseOptions>,
}

/// `FeatureMap`.
#[derive(Clone, PartialEq, Message)]
struct User {
    #[prost(message, repeated, tag = "1")]
    features: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Treatment {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, repeated, tag = "2")]
    features: Vec<Entry>,
}

/// An entry of a map of features.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Value>,
}

/// The model field of `PredictRequest` and `BatchPredictRequest`.
#[derive(Clone, PartialEq, Message)]
struct Addressed {
    #[prost(message, optional, tag = "1")]
    model: Option<ModelSelector>,
}

/// The requests of `BatchPredictRequest`, as encoded bytes; the encoding of bytes and of
/// messages is the same.
#[derive(Clone, PartialEq, Message)]
struct Batch {
    #[prost(bytes = "bytes", repeated, tag = "4")]
    requests: Vec<Bytes>,
}

/// Adds the model to a request, or to a batch of several.
pub(super) fn addressed(model: &ModelSelector, requests: &[Bytes]) -> Vec<u8> {
    let mut bytes = Addressed { model: Some(model.clone()) }.encode_to_vec();
    match requests {
        [request] => bytes.extend_from_slice(request),
        _ => bytes.extend(Batch { requests: requests.to_vec() }.encode_to_vec()),
    }
    bytes
}

/// A request in key-value form, without the model.
pub(super) fn key_values(sample: &Sample) -> Vec<u8> {
    let treatment = |treatment: &Sampled| Treatment {
        id: treatment.id.clone(),
        features: sample
            .columns
            .iter()
            .zip(&treatment.values)
            .map(|(column, value)| entry(&column.name, value))
            .collect(),
    };
    let treatments = sample.treatments.iter().map(treatment).collect();
    Request { treatments, ..head(sample) }.encode_to_vec()
}

/// A request in columnar form, without the model.
pub(super) fn columnar(sample: &Sample) -> Vec<u8> {
    Request { table: Some(table(sample)), ..head(sample) }.encode_to_vec()
}

/// Encodes a request in key-value form with its features sorted by name.
pub(super) fn ordered(request: PredictRequest) -> Vec<u8> {
    let user = match request.user {
        Some(predict_request::User::UserFeatures(user)) => {
            Some(User { features: sorted(user.features) })
        }
        _ => None,
    };
    let treatments = request.treatments.into_iter();
    let treatments =
        treatments.map(|one| Treatment { id: one.id, features: sorted(one.features) }).collect();
    let PredictRequest { request_id, routing_key, options, .. } = request;
    Request { request_id, routing_key, user, treatments, table: None, options }.encode_to_vec()
}

fn sorted(features: HashMap<String, Value>) -> Vec<Entry> {
    let mut features: Vec<_> =
        features.into_iter().map(|(key, value)| Entry { key, value: Some(value) }).collect();
    features.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    features
}

fn head(sample: &Sample) -> Request {
    let features = sample.user.iter().map(|(name, value)| entry(name, value)).collect();
    Request {
        request_id: sample.request_id.clone(),
        routing_key: sample.routing_key.clone(),
        user: Some(User { features }),
        ..Request::default()
    }
}

fn entry(name: &str, value: &Kind) -> Entry {
    Entry { key: name.to_owned(), value: Some(Value { kind: Some(value.clone()) }) }
}

fn table(sample: &Sample) -> TreatmentTable {
    let mut table = TreatmentTable {
        ids: sample.treatments.iter().map(|treatment| treatment.id.clone()).collect(),
        count: u32::try_from(sample.treatments.len()).expect("a request that fits into memory"),
        ..TreatmentTable::default()
    };
    let (mut numbers, mut matrix) = (Vec::new(), Matrix::default());
    for (index, column) in sample.columns.iter().enumerate() {
        let values = || sample.treatments.iter().map(move |treatment| &treatment.values[index]);
        match values().next() {
            Some(Kind::Text(_) | Kind::Texts(_)) => table.texts.push(texts(column, values())),
            Some(Kind::Integer(_) | Kind::Integers(_) | Kind::Flag(_)) => {
                table.integers.push(integers(column, values()));
            }
            Some(Kind::Sparse(_)) => table.sparse.push(sparse(column, values())),
            _ => {
                matrix.names.push(column.name.to_string());
                matrix.widths.push(width(column));
                numbers.push(index);
            }
        }
    }
    // Widths may be omitted if all are 1.
    if matrix.widths.iter().all(|width| *width == 1) {
        matrix.widths.clear();
    }
    let rows = sample.treatments.iter();
    let values = rows.flat_map(|row| numbers.iter().map(|index| &row.values[*index]));
    let mut bytes = Vec::new();
    values.for_each(|value| put_floats(value, &mut bytes));
    matrix.values = bytes.into();
    table.numbers = Some(matrix).filter(|matrix| !matrix.names.is_empty());
    table
}

fn width(column: &Column) -> u32 {
    u32::try_from(column.length).expect("lengths are limited")
}

fn put_floats(value: &Kind, bytes: &mut Vec<u8>) {
    let mut put = |value: f32| bytes.extend_from_slice(&value.to_le_bytes());
    match value {
        Kind::Number(value) => put(*value),
        Kind::Numbers(list) => list.values.iter().for_each(|value| put(*value)),
        // A table has no float64 columns.
        Kind::Real(value) => put(*value as f32),
        Kind::Reals(list) => list.values.iter().for_each(|value| put(*value as f32)),
        _ => {}
    }
}

fn texts<'s>(column: &Column, values: impl Iterator<Item = &'s Kind>) -> TextColumn {
    let mut texts = Vec::new();
    for value in values {
        match value {
            Kind::Text(text) => texts.push(text.clone()),
            Kind::Texts(list) => texts.extend_from_slice(&list.values),
            _ => {}
        }
    }
    let (name, width) = (column.name.to_string(), width(column));
    TextColumn { name, values: texts, width, ..TextColumn::default() }
}

fn sparse<'s>(column: &Column, values: impl Iterator<Item = &'s Kind>) -> SparseColumn {
    let mut sparse = SparseColumn { name: column.name.to_string(), ..SparseColumn::default() };
    sparse.width = width(column);
    for value in values {
        if let Kind::Sparse(list) = value {
            sparse.ids.extend_from_slice(&list.ids);
            sparse.names.extend_from_slice(&list.names);
            sparse.weights.extend(list.weights.iter().flat_map(|weight| weight.to_le_bytes()));
        }
    }
    sparse
}

fn integers<'s>(column: &Column, values: impl Iterator<Item = &'s Kind>) -> IntegerColumn {
    let mut integers = Vec::new();
    for value in values {
        match value {
            Kind::Integer(value) => integers.push(*value),
            Kind::Flag(flag) => integers.push(i64::from(*flag)),
            Kind::Integers(list) => integers.extend_from_slice(&list.values),
            _ => {}
        }
    }
    let (name, width) = (column.name.to_string(), width(column));
    IntegerColumn { name, values: integers, width, ..IntegerColumn::default() }
}
